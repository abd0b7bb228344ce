"""What a topic is: its key, its queue policy, what its journal keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from conflation.log import History
from keys.spec import KeySpec


class QueuePolicy(StrEnum):
    """What becomes of a slow session's queue of this topic (as Diffusion's policies)."""

    OFF = "off"
    CONFLATE = "conflate"


@dataclass(frozen=True, slots=True)
class Definition:
    """A topic as the engine needs it; an empty `key_spec` means that it keeps no records."""

    history: History
    key_spec: KeySpec = field(default_factory=KeySpec)
    policy: QueuePolicy = QueuePolicy.CONFLATE
