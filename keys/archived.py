"""Names of an archive's files, chosen so that a listing alone shows their content.

    topic=ticks/date=2026-11-21/part-1795000000000-e5f0-…1-…100000.parquet

`stamp` is the time of the file's first message in milliseconds on a clock that never runs back,
`date` its day. The epoch follows, then the first and the last position; no position between them is
missing. Paths sort in the order of publication, also over epochs. Names that begin with `_` or `.`
are not part of an archive, as Spark and pyarrow ignore them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

COLUMNS = ("epoch", "position", "timestamp_ms", "key", "value", "reason")
"""`value` is null for a removal; `reason` is then its reason. The removed value is not kept."""

DAY_MS = 86_400_000
_NAME = re.compile(
    r"part-(?P<stamp>\d{13})-(?P<epoch>[A-Za-z0-9-]{1,64})-(?P<first>\d{19})-(?P<last>\d{19})\.parquet"
)


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """The content of a file: positions `first` to `last` of an epoch, from `stamp_ms` on.

    Parts are ordered as their names are: by publication.
    """

    stamp_ms: int
    epoch: str
    first: int
    last: int

    @classmethod
    def of(cls, name: str) -> Part | None:
        """Read a file's name; None for a name of another kind."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(int(found["stamp"]), found["epoch"], int(found["first"]), int(found["last"]))

    @property
    def name(self) -> str:
        """The file's name."""
        return f"part-{self.stamp_ms:013}-{self.epoch}-{self.first:019}-{self.last:019}.parquet"

    @property
    def day(self) -> int:
        """The day of `stamp_ms`, counted from 1970-01-01 (UTC)."""
        return self.stamp_ms // DAY_MS


def topic_folder(topic: str) -> str:
    """Return the name of a topic's folder."""
    return f"topic={topic}"


def reach(parts: Sequence[Part], epoch: str) -> tuple[int, int] | None:
    """Return the ends of an epoch's newest stretch without a hole; None without parts."""
    # A hole ends what can be replayed, so only the stretch at the newest end counts.
    own = sorted((part for part in parts if part.epoch == epoch), key=lambda part: part.first)
    if not own:
        return None
    first, last = own[-1].first, own[-1].last
    for part in reversed(own[:-1]):
        if part.last + 1 != first:
            break
        first = part.first
    return first, last


def after(parts: Iterable[Part], epoch: str, position: int) -> list[Part]:
    """Return an epoch's parts that hold any message after a position, in order."""
    return sorted(part for part in parts if part.epoch == epoch and part.last > position)
