"""Conflicts: options that cannot stand beside one another, or on this topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.conflation.definition import Definition, Kind
from tidegate.conflation.options.parse import Options
from tidegate.conflation.options.readers import AUTO
from tidegate.conflation.subscription import Auto, Command
from tidegate.keys.text.duration import MILLISECOND, SECOND

# The ladder of `conflation=auto`: the intervals that it may choose from (CONTRACT 5.2).


STEPS_NS = (
    *(50 * MILLISECOND, 100 * MILLISECOND, 200 * MILLISECOND, 500 * MILLISECOND),
    *(1 * SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND),
)


def step_not_below(bound_ns: int) -> int | None:
    """The shortest step of at least this; None above the last one."""
    return next((step_ns for step_ns in STEPS_NS if step_ns >= bound_ns), None)


def step_not_above(bound_ns: int) -> int | None:
    """The longest step of at most this; None below the first one."""
    return next((step_ns for step_ns in reversed(STEPS_NS) if step_ns <= bound_ns), None)


def steps_within(min_ns: int, max_ns: int) -> tuple[int, int] | None:
    """The first and the last step between two bounds; None if there is no step between them."""
    first, last = step_not_below(min_ns), step_not_above(max_ns)
    return (first, last) if first is not None and last is not None and first <= last else None


_WITH_INTERVAL = ("conflation_key", "pace", "edge", "max_age", "never", "flush_on", "reduce")
_WITH_FIELDS = ("conflation_key", "never", "flush_on", "select", "projection", "reduce")
_WITH_BOOKMARK = ("bookmark_not_found", "rate", "rate_max_gap", "pause")


class Conflict(NamedTuple):
    """One of these options has to go: the topic's own, if one is; else the request is refused."""

    names: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class OptionsInContext:
    """What was asked for, of which topic; options with the topic's own."""

    definition: Definition
    options: Options
    command: Command
    by_pattern: bool = False

    @property
    def has_interval(self) -> bool:
        """Whether an interval is asked for, be it `auto`."""
        return bool(self.options.conflation)

    @property
    def has_fields(self) -> bool:
        """Whether the topic's messages have fields."""
        return self.definition.kind in (Kind.JSON, Kind.SERIES)

    @property
    def keeps_records(self) -> bool:
        """Whether the topic has a state of the world."""
        return bool(self.definition.key_spec) or self.definition.retains


def conflicts(case: OptionsInContext) -> Iterator[Conflict]:
    """Everything that is wrong with a case."""
    yield from _topic(case)
    yield from _interval(case)
    yield from _auto(case)
    yield from _removals(case)
    yield from _shapes(case)
    yield from _replays(case)
    if case.options.no_empties and not case.command.is_delta:
        yield Conflict(("no_empties",), "no_empties needs a delta command")
    if case.options.pause and case.options.resume:
        yield Conflict(("pause",), "pause and resume are opposites")


def auto_of(options: Options) -> Auto | None:
    """The steps between which `auto` moves; None if there are none between its bounds.

    Without `max` a promised `max_age` is the upper bound.
    """
    shortest, longest = STEPS_NS[0], STEPS_NS[-1]
    low = shortest if options.min is None else options.min
    high = next((ns for ns in (options.max, options.max_age) if ns is not None), longest)
    steps = steps_within(low, high)
    return None if steps is None else Auto(*steps)


def _topic(case: OptionsInContext) -> Iterator[Conflict]:
    options, key_spec = case.options, case.definition.key_spec
    if not case.has_fields:
        for name in _given(options, _WITH_FIELDS):
            yield Conflict((name,), f"{name} needs messages with fields, on a topic of type json")
    if case.has_interval and case.definition.kind is Kind.SERIES:
        yield Conflict(("conflation",), "a series is never conflated")
    keys = (key_spec, options.conflation_key or key_spec)
    if options.reduce and any(options.reduce.writes_to(one.paths) for one in keys):
        detail = "a reducer may not write to a field of the key: it would name another record"
        yield Conflict(("reduce",), detail)
    if key_spec:
        return
    for name in _given(options, ("oof", "top_n", "projection")):
        yield Conflict((name,), f"{name} needs a topic with a key")
    if case.has_interval and case.has_fields and options.conflation_key is None:
        detail = "the topic has no key, so an interval needs conflation_key=[...] beside it"
        yield Conflict(("conflation",), detail)


def _interval(case: OptionsInContext) -> Iterator[Conflict]:
    options = case.options
    if not case.has_interval:
        for name in _given(options, _WITH_INTERVAL):
            yield Conflict((name,), f"{name} needs a conflation interval beside it")
        return
    if options.edge == "leading" and options.pace == "batch":
        yield Conflict(("edge", "pace"), "edge=leading is a matter of each key, not of pace=batch")
    longest = options.conflation
    if longest == AUTO:
        auto = auto_of(options)
        longest = None if auto is None else auto.max_ns
    if options.max_age is not None and isinstance(longest, int) and options.max_age < longest:
        yield Conflict(("max_age",), "max_age is below the interval")


def _auto(case: OptionsInContext) -> Iterator[Conflict]:
    options = case.options
    if options.conflation != AUTO:
        for name in _given(options, ("min", "max")):
            yield Conflict((name,), f"{name} is a bound of conflation=auto")
        return
    if options.min is not None and options.max is not None and options.min > options.max:
        yield Conflict(("min", "max"), "min is above max")
    if auto_of(options) is None:
        names = _given(options, ("max", "min", "max_age"))
        steps = "50ms 100ms 200ms 500ms 1s 2s 5s 10s 30s"
        yield Conflict(names, f"no step of auto ({steps}) is within these bounds")


def _removals(case: OptionsInContext) -> Iterator[Conflict]:
    options, key_spec = case.options, case.definition.key_spec
    asked = options.conflation_key
    if asked is None:
        return
    if options.projection is not None:
        key_spec = options.projection.grouping
    if set(asked.paths) == set(key_spec.paths):
        return
    if options.projection is not None:
        detail = "the key of a projection is its grouping"
        yield Conflict(("conflation_key", "projection"), detail)
    elif options.top_n is not None:
        detail = "the key of a window is that of the topic"
        yield Conflict(("conflation_key", "top_n"), detail)
    elif options.oof:
        yield Conflict(("conflation_key", "oof"), "with oof the key is that of the topic")


def _shapes(case: OptionsInContext) -> Iterator[Conflict]:
    options = case.options
    if options.skip_n is not None and options.top_n is None:
        yield Conflict(("skip_n",), "skip_n needs top_n beside it")
    shapes = _given(options, ("top_n", "projection"))
    if len(shapes) == 2:
        yield Conflict(shapes, "a projection has no window")
    for name in shapes:
        if not case.command.queries:
            yield Conflict((name,), f"{name} needs a command that begins with a snapshot")
        if case.by_pattern:
            yield Conflict((name,), f"{name} needs one topic, not a pattern")
        if options.reduce is not None:
            yield Conflict(("reduce", name), f"reduce is for messages, not for {name}")
    if options.projection is not None:
        for name in _given(options, ("select", "never", "flush_on")):
            yield Conflict((name, "projection"), f"{name} is for messages, not for a projection")


def _replays(case: OptionsInContext) -> Iterator[Conflict]:
    options = case.options
    if options.rate_max_gap is not None and options.rate is None:
        yield Conflict(("rate_max_gap",), "rate_max_gap needs rate beside it")
    for name in _given(options, ("rate", "pause")):
        if options.live:
            yield Conflict(("live", name), f"live and {name} exclude one another")
    if options.bookmark is None:
        for name in _given(options, _WITH_BOOKMARK):
            if not (options.is_change and name == "pause"):
                yield Conflict((name,), f"{name} needs bookmark beside it")
        return
    if case.command is not Command.SUBSCRIBE:
        yield Conflict(("bookmark",), "bookmark is for the command subscribe")
    if options.oof:
        yield Conflict(("oof", "bookmark"), "a bookmark subscription is not told of removals")


def _given(options: Options, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if options.says(name))
