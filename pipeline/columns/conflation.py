"""What a stream asks for: which messages become one, and how."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.keys.filter import Filter
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.bodies import Bodies, Folded, Merging, Newest
from tidegate.pipeline.columns.conflator import Conflator
from tidegate.pipeline.columns.intervals import Interval
from tidegate.pipeline.columns.timeline import Timeline
from tidegate.pipeline.columns.times import TimeField


@dataclass(frozen=True, slots=True)
class Conflation:
    """What is conflated, and how; `tells_removals` is the option `oof`.

    `merger` is the name of a registered one: what travels is the name, imported where it is needed.
    `time` is the field of event time; without one `time_ms` is the time. `lateness_ns` is how far
    the watermark stays behind. With `sets_aside` a line that is no record of the key, or has no
    time, is a row of its own with the reason; without, it is an error, and a field of the key
    that is missing counts as null. A line that is set aside for its length is longer than
    `line_bytes_max`.
    """

    key: KeySpec
    interval: Interval
    time: TimeField | None = None
    filter: Filter | None = None
    reduce: Reduce | None = None
    merger: str = ""
    tells_removals: bool = False
    topic: str = ""
    lateness_ns: int = 0
    sets_aside: bool = False
    line_bytes_max: int | None = None

    @property
    def bodies(self) -> Bodies:
        """How bodies become one.

        Raises:
            DefinitionInvalid: the merger is not there.
        """
        if self.merger:
            return Merging(self.merger, self.key)
        if self.reduce is None or self.reduce.is_plain:
            return Newest()
        return Folded(self.reduce)

    def conflator(self) -> Conflator:
        """The state of a stream, with nothing held."""
        return Conflator(self.interval, self.bodies, tells_removals=self.tells_removals)

    def timeline(self) -> Timeline:
        """The state of its event time, with nothing waiting."""
        return Timeline(self.lateness_ns, self.bodies)
