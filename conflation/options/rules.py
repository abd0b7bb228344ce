"""The rules of options: what each needs of the request and the topic, and what it excludes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from tidegate.conflation.auto import STEPS_NS, auto_within
from tidegate.conflation.definition import Definition, Kind
from tidegate.conflation.subscription import AUTO, Auto, Command
from tidegate.keys.reducers import Reduce
from tidegate.keys.text.duration import duration_text


@dataclass(frozen=True, slots=True)
class Case:
    """Options on a topic: the values that were given, by name, with the topic's own among them.

    `is_change`: they change a running subscription.
    """

    definition: Definition
    given: Mapping[str, Any]
    command: Command
    by_pattern: bool = False
    is_change: bool = False

    @property
    def has_interval(self) -> bool:
        """True if an interval is asked for, `auto` included; `none` is 0."""
        return bool(self.given.get("conflation"))

    @property
    def auto(self) -> Auto | None:
        """The steps of `conflation=auto`; None if none is within its bounds."""
        return auto_within(*map(self.given.get, ("min", "max", "max_age")))

    @property
    def longest_ns(self) -> int | None:
        """The longest interval there may be; None where `auto` has no step."""
        if self.given.get("conflation") == AUTO:
            return None if self.auto is None else self.auto.max_ns
        return int(self.given.get("conflation", 0))

    @property
    def has_key_of_records(self) -> bool:
        """True if the conflation key tells apart what the records do, in whatever order."""
        projection = self.given.get("projection")
        spec = self.definition.key_spec if projection is None else projection.grouping
        return set(self.given["conflation_key"].paths) == set(spec.paths)

    @property
    def reduces_a_key(self) -> bool:
        """True if a reducer writes to a field of the topic's key or the conflation key."""
        definition = self.definition
        keys = (
            definition.key_spec,
            self.given.get("conflation_key", definition.conflation_key),
        )
        return any(self.given["reduce"].writes_to(spec.paths) for spec in keys)

    @property
    def merges_the_key(self) -> bool:
        """True if the topic's own reducers write to a field of the conflation key."""
        merge = self.definition.merge
        # They do not act on groups, and the request's own reducers take their place.
        if not isinstance(merge, Reduce) or not {"reduce", "projection"}.isdisjoint(self.given):
            return False
        return merge.writes_to(self.given["conflation_key"].paths)


class Conflict(NamedTuple):
    """One of these options has to go: the topic's own, if one is; else the request is refused."""

    names: tuple[str, ...]
    detail: str


class Condition(NamedTuple):
    """A condition on requests that give an option; `{name}` in the texts is that option.

    If it does not hold, one of `either` has to go: the option itself, unless more are named.
    """

    detail: str
    holds: Callable[[Case], bool]
    either: tuple[str, ...] = ("{name}",)


def _needs(other: str) -> Condition:
    return Condition(f"{{name}} needs {other}", lambda case: other in case.given)


def _excludes(other: str, detail: str) -> Condition:
    return Condition(detail, lambda case: other not in case.given, ("{name}", other))


def _fixes_key(other: str, detail: str) -> Condition:
    # Removals, windows and groups are about records: rows of another key would mix them up.
    return Condition(
        detail,
        lambda case: other not in case.given or case.has_key_of_records,
        ("{name}", other),
    )


_STEPS = " ".join(map(duration_text, STEPS_NS))


class Rule(Enum):
    """Every rule, in the order in which it is checked.

    A request with several faults is answered with the first, so the order is behavior: the topic,
    the interval, the key, the shape, the replay, the command.
    """

    FIELDS = Condition(
        "{name} needs messages with fields, on a topic of type json",
        lambda case: case.definition.has_fields,
    )
    # A series is an event log, in which every message counts.
    NO_SERIES = Condition(
        "a series is never conflated",
        lambda case: not case.has_interval or case.definition.kind is not Kind.SERIES,
    )
    KEY_KEPT = Condition(
        "a reducer may not write to a field of the key: it would name another record",
        lambda case: not case.reduces_a_key,
    )
    MERGE_KEPT = Condition(
        "the topic's merge writes to a field of this key: give reduce, too",
        lambda case: not case.merges_the_key,
    )
    KEYED_TOPIC = Condition(
        "{name} needs a topic with a key", lambda case: bool(case.definition.key_spec)
    )
    # Apart, so that a request for a window of groups is refused for its window, as ONE_SHAPE does.
    KEYED_GROUPS = Condition(KEYED_TOPIC.detail, lambda case: bool(case.definition.key_spec))
    # Where messages have no fields, the topic itself is the key: each replaces the one before.
    ANY_KEY = Condition(
        "the topic has no key, so an interval needs conflation_key=[...]",
        lambda case: (
            not (case.has_interval and case.definition.has_fields)
            or bool(case.definition.conflation_key)
            or "conflation_key" in case.given
        ),
    )
    # Without effect it is most likely a mistake, and a silent one (rule option-3).
    INTERVAL = Condition("{name} needs a conflation interval", lambda case: case.has_interval)
    KEY_BY_KEY = Condition(
        "edge=leading is a matter of each key, not of pace=batch",
        lambda case: (case.given["edge"], case.given.get("pace")) != ("leading", "batch"),
        ("edge", "pace"),
    )
    # A promise below the interval would be broken by every row that was held for all of it.
    AGE_OF_INTERVAL = Condition(
        "max_age is below the interval",
        lambda case: case.longest_ns is None or case.longest_ns <= case.given["max_age"],
    )
    AUTO = Condition(
        "{name} is a bound of conflation=auto", lambda case: case.given.get("conflation") == AUTO
    )
    BOUNDS = Condition(
        "min is above max",
        lambda case: case.given["min"] <= case.given.get("max", case.given["min"]),
        ("min", "max"),
    )
    STEP = Condition(
        f"no step of auto ({_STEPS}) is within these bounds",
        lambda case: case.given["conflation"] != AUTO or case.auto is not None,
        ("max", "min", "max_age"),
    )
    KEY_OF_GROUPS = _fixes_key("projection", "the key of a projection is its grouping")
    KEY_OF_WINDOW = _fixes_key("top_n", "the key of a window is that of the topic")
    KEY_OF_REMOVALS = _fixes_key(
        "oof", "with oof the key is that of the topic; for another one use grouping and projection"
    )
    WINDOW = _needs("top_n")
    ONE_SHAPE = _excludes("projection", "a projection has no window")
    SNAPSHOT = Condition(
        "{name} needs a command that begins with a snapshot", lambda case: case.command.queries
    )
    ONE_TOPIC = Condition("{name} needs one topic, not a pattern", lambda case: not case.by_pattern)
    # Rows of windows and groups are made of records: there are no messages to combine or exempt.
    # A projection has columns of its own, so `select` goes first.
    NOT_OF_WINDOW = _excludes("top_n", "{name} is for messages, not for top_n")
    NOT_OF_PROJECTION = _excludes("projection", "{name} is for messages, not for projection")
    NO_COLUMNS = _excludes("projection", "{name} is for messages, not for a projection")
    NOT_OF_GROUPS = _excludes("projection", NO_COLUMNS.detail)
    RATE = _needs("rate")
    # As in AMPS: what is live is sent as it comes, at no rate of its own.
    LIVE_RATE = _excludes("rate", "live and rate exclude one another")
    LIVE_PAUSE = _excludes("pause", "live and pause exclude one another")
    BOOKMARK = _needs("bookmark")
    # A change may pause any subscription that runs.
    BOOKMARK_OR_CHANGE = Condition(
        BOOKMARK.detail, lambda case: case.is_change or "bookmark" in case.given
    )
    PLAIN_SUBSCRIBE = Condition(
        "{name} is for the command subscribe", lambda case: case.command is Command.SUBSCRIBE
    )
    NO_REPLAY = _excludes("bookmark", "a bookmark subscription receives no removals")
    DELTA = Condition("{name} needs a delta command", lambda case: case.command.is_delta)
    NO_RESUME = Condition("pause and resume are opposites", lambda case: "resume" not in case.given)

    def conflict(self, case: Case, name: str) -> Conflict | None:
        """Return what is wrong with an option that is given; None if the rule is kept."""
        condition: Condition = self.value
        if condition.holds(case):
            return None
        either = (each.format(name=name) for each in condition.either)
        # `auto` without a step is refused for those bounds that were given.
        names = tuple(each for each in either if each in case.given)
        return Conflict(names, self.sentence.format(name=name))

    @property
    def sentence(self) -> str:
        """The detail of a refusal, with `{name}` for the option."""
        condition: Condition = self.value
        return condition.detail
