"""What a subscriber asks for, made definite: options, defaults and the topic's own key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from conflation.bookmark import Bookmark
from conflation.errors import OptionsInvalid
from conflation.options import Options, options_text
from keys.spec import KeySpec


class Command(StrEnum):
    """The commands of AMPS that are served so far."""

    SUBSCRIBE = "subscribe"
    SOW = "sow"
    SOW_AND_SUBSCRIBE = "sow_and_subscribe"


_LATER = ("delta_subscribe", "sow_and_delta_subscribe")


@dataclass(frozen=True, slots=True)
class LaneId:
    """What subscriptions must have in common to share a lane: equal ids, one lane.

    `interval_ns` 0 is `conflation=none`: every message. `key_spec` empty means that the
    topic itself is the key.
    """

    interval_ns: int
    key_spec: KeySpec
    pace: str

    def __str__(self) -> str:
        return options_text(self.interval_ns, self.key_spec, self.pace)


@dataclass(frozen=True, slots=True)
class Subscription:
    """One request, decided: its command, its lane, and the bookmark it resumes from.

    `tells_first`: each row is to name the first message it stands for, as envelopes do.
    """

    topic: str
    command: Command
    lane_id: LaneId
    resume: Bookmark | None = None
    tells_first: bool = False


def decide(
    topic: str,
    sow_spec: KeySpec,
    options: Options,
    *,
    command: str | None = None,
    default_pace: str = "batch",
    resume: Bookmark | None = None,
    tells_first: bool = False,
) -> Subscription:
    """Options, the topic's key and the defaults, put together.

    Raises:
        OptionsInvalid: a conflict, a key that is missing, a command that is not served.
    """
    interval_ns = options.interval_ns or 0
    if not interval_ns:
        for name in ("conflation_key", "pace"):
            if options.given(name):
                raise OptionsInvalid(
                    f"{name} needs a conflation interval beside it", options.position(name)
                )
    key_spec = options.key_spec if options.key_spec is not None else sow_spec
    if interval_ns and not key_spec:
        raise OptionsInvalid(
            "the topic has no key, so an interval needs conflation_key=[...] beside it",
            options.position("conflation"),
        )
    pace = options.pace or default_pace if interval_ns else "batch"
    lane_id = LaneId(interval_ns, key_spec, pace)
    return Subscription(topic, _command(command, sow_spec), lane_id, resume, tells_first)


def _command(text: str | None, sow_spec: KeySpec) -> Command:
    if text is None:
        return Command.SOW_AND_SUBSCRIBE if sow_spec else Command.SUBSCRIBE
    if text in _LATER:
        raise OptionsInvalid(f"command {text} is not available yet")
    if text not in set(Command):
        raise OptionsInvalid("command: expected subscribe, sow or sow_and_subscribe")
    command = Command(text)
    if command is not Command.SUBSCRIBE and not sow_spec:
        raise OptionsInvalid(f"command {text} needs a topic with a key")
    return command
