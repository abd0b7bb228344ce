"""The table of options: one entry for each; everything else about an option follows from it.

An entry of `Options` says how the value is written (`values.py`), what it is if nothing is given,
what a granted subscription has of it, which rules it keeps (`rules.py`), and a line for the
reference page. Parsing, both printed forms (`print.py`), the search for conflicts and that page
(`reference.py`) go over `TABLE`. A new option is an entry here, and a lane or a stream that acts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from tidegate.conflation.auto import STEPS_NS
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.lane_id import Window
from tidegate.conflation.options.parse import assignments, hint, join_projection, read_value
from tidegate.conflation.options.rules import Case, Conflict, Rule
from tidegate.conflation.options.values import (
    AUTO,
    BATCH_SIZE_MAX,
    BOOKMARK,
    BRACKETED,
    DURATION,
    FILTER,
    INTERVAL,
    KEY,
    NOT_FOUND,
    NOW,
    PROJECTION,
    RATE,
    REDUCE,
    SELECT,
    SKIP_N_MAX,
    TOP_N_MAX,
    Syntax,
    one_of,
    whole_number,
)
from tidegate.conflation.subscription import BATCH_SIZE, NotFound, Subscription
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.text.bookmark import START
from tidegate.keys.text.duration import duration_text

AMPS, DIFFUSION, TIDEGATE = "AMPS", "Diffusion", "Tidegate"

Value = TypeVar("Value")
Granted = Callable[[Subscription], Any]
"""The value that a granted subscription has of an option; None or the default: not printed."""


class Option(Generic[Value]):
    """An entry; read from an `Options`, it is the value that was given, or else the default.

    `syntax` is None for a flag. `usual` describes, for the reference, a default that the table
    cannot know. `only_in_change`: an option of a session's PATCH. `source` is where its meaning
    comes from.
    """

    def __init__(
        self,
        syntax: Syntax[Value] | None,
        meaning: str,
        *,
        default: Value,
        usual: str = "",
        granted: Granted = lambda _: None,
        rules: tuple[Rule, ...] = (),
        only_in_change: bool = False,
        source: str = AMPS,
    ) -> None:
        self.name = ""
        self.syntax = syntax
        self.meaning = meaning
        self.default = default
        self.usual = usual
        self.granted = granted
        self.rules = rules
        self.only_in_change = only_in_change
        self.source = source

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, options: None, owner: type) -> Self: ...
    @overload
    def __get__(self, options: Options, owner: type) -> Value: ...
    def __get__(self, options: Options | None, owner: type) -> Self | Value:
        if options is None:
            return self
        value: Value = options.values.get(self.name, self.default)
        return value

    def read(self, text: str | None, position: int) -> Any:
        """Return the value that a text says; None for an option without `=`.

        Raises:
            OptionsInvalid: a value that is missing, malformed, or one too many.
        """
        return read_value(self.name, self.syntax, text, position)

    def text(self, value: Any) -> str:
        """Return the option with this value, in canonical spelling."""
        # `oof=true` would suggest that `oof=false` switches off a topic's own (rule option-1).
        return self.name if self.syntax is None else f"{self.name}={self.syntax.text(value)}"


def _window(given: Subscription) -> Window | None:
    shape = given.lane_id.feed.shape
    return shape if isinstance(shape, Window) else None


def _start(given: Subscription) -> object:
    if given.replay is None:
        # From now on there is nothing to replay, but `pause` needs a bookmark beside it.
        return NOW if given.paused else None
    return START if given.replay.start is None else given.replay.start


@dataclass(frozen=True)
class Options:
    """Options as given. The entries are the table; an instance holds the values of one text.

    `values` has what the text names, and what was taken over from other options, under the names
    of entries; `grouping` is part of `projection`. `positions` tells at which character each name
    stands. `is_change`: they change a running subscription.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    positions: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    is_change: bool = False

    conflation = Option(
        INTERVAL,
        "at most one message per key and interval, the newest",
        default=None,  # not 0: `conflation=none` is printed, as it overrides the topic's own
        usual="`none`",
        granted=lambda given: AUTO if given.shown.auto else given.lane_id.interval_ns,
        rules=(Rule.NO_SERIES, Rule.ANY_KEY, Rule.STEP),
    )
    conflation_key = Option(
        KEY,
        "messages with equal fields replace one another",
        default=None,
        usual="the topic's key",
        granted=lambda given: (given.lane_id.interval_ns and given.lane_id.feed.key_spec) or None,
        rules=(
            *(Rule.FIELDS, Rule.INTERVAL),
            *(Rule.KEY_OF_GROUPS, Rule.KEY_OF_WINDOW, Rule.KEY_OF_REMOVALS),
        ),
    )
    pace = Option(
        one_of("batch", "key"),
        "one interval for all keys, or one for each",
        default=None,  # the setting of this gateway, which another one may not have
        usual="setting `default_pace`",
        granted=lambda given: given.lane_id.pace if given.lane_id.interval_ns else None,
        rules=(Rule.INTERVAL,),
        source=TIDEGATE,
    )
    edge = Option(
        one_of("trailing", "leading"),
        "when a quiet key goes: at the end of its interval, or at once",
        default="trailing",
        granted=lambda given: "leading" if given.lane_id.leading else None,
        rules=(Rule.INTERVAL, Rule.KEY_BY_KEY),
        source=TIDEGATE,
    )
    min = Option(
        DURATION,
        "lower bound of `auto`, rounded up to a step",
        default=None,
        usual=f"`{duration_text(STEPS_NS[0])}`",
        granted=lambda given: given.shown.auto and given.shown.auto.min_ns,
        rules=(Rule.AUTO, Rule.BOUNDS),
        source=TIDEGATE,
    )
    max = Option(
        DURATION,
        "upper bound of `auto`, rounded down to a step",
        default=None,
        usual=f"`max_age`, or `{duration_text(STEPS_NS[-1])}`",
        granted=lambda given: given.shown.auto and given.shown.auto.max_ns,
        rules=(Rule.AUTO,),
        source=TIDEGATE,
    )
    max_age = Option(
        DURATION,
        "greatest age of a row at the socket; a breach sends `late`",
        default=None,
        granted=lambda given: given.shown.max_age_ns,
        rules=(Rule.INTERVAL, Rule.AGE_OF_INTERVAL),
        source=TIDEGATE,
    )
    never = Option(
        FILTER,
        "messages that match are not conflated",
        default=None,
        granted=lambda given: given.lane_id.never,
        rules=(Rule.FIELDS, Rule.INTERVAL, Rule.NOT_OF_GROUPS),
        source=TIDEGATE,
    )
    flush_on = Option(
        FILTER,
        "a message that matches first sends what is held",
        default=None,
        granted=lambda given: given.lane_id.flush_on,
        rules=(Rule.FIELDS, Rule.INTERVAL, Rule.NOT_OF_GROUPS),
        source=TIDEGATE,
    )
    timestamp = Option(
        None,
        "shows the publication time of a row's first message",
        default=False,
        granted=lambda given: given.shown.timestamp,
    )
    receipt = Option(
        None,
        "shows how many messages a row stands for, the first and the last",
        default=False,
        granted=lambda given: given.shown.receipt,
        source=TIDEGATE,
    )
    oof = Option(
        None,
        "sends a removal for each record that leaves",
        default=False,
        granted=lambda given: given.lane_id.oof,
        rules=(Rule.KEYED_TOPIC, Rule.NO_REPLAY),
    )
    no_empties = Option(
        None,
        "omits deltas without a change",
        default=False,
        granted=lambda given: given.lane_id.no_empties,
        rules=(Rule.DELTA,),
    )
    send_keys = Option(
        None, "shows the key", default=False, granted=lambda given: given.shown.send_keys
    )
    no_sowkey = Option(
        None, "omits the key", default=False, granted=lambda given: given.shown.no_sowkey
    )
    progress = Option(
        None,
        "sends `progress` events, also while no row is sent",
        default=False,
        granted=lambda given: given.shown.progress,
        source=TIDEGATE,
    )
    select = Option(
        SELECT,
        "which fields are sent; the filter sees all",
        default=None,
        usual="all",
        granted=lambda given: given.lane_id.select,
        rules=(Rule.FIELDS, Rule.NO_COLUMNS),
    )
    projection: ClassVar[Option[Projection | None]] = Option(
        PROJECTION,
        "fields and aggregates of a row for each group",
        default=None,
        granted=lambda given: (
            shape if isinstance(shape := given.lane_id.feed.shape, Projection) else None
        ),
        rules=(Rule.FIELDS, Rule.KEYED_GROUPS, Rule.SNAPSHOT, Rule.ONE_TOPIC),
    )
    grouping = Option(
        BRACKETED, "the fields that make a group, and its key; with `projection`", default=None
    )
    top_n = Option(
        whole_number(1, TOP_N_MAX),
        "a live window: so many records by `order_by`",
        default=None,
        granted=lambda given: (window := _window(given)) and window.top_n,
        rules=(Rule.KEYED_TOPIC, Rule.ONE_SHAPE, Rule.SNAPSHOT, Rule.ONE_TOPIC),
    )
    skip_n = Option(
        whole_number(0, SKIP_N_MAX),
        "the window begins behind so many records",
        default=0,
        granted=lambda given: (window := _window(given)) and window.skip_n,
        rules=(Rule.WINDOW,),
    )
    batch_size = Option(
        whole_number(1, BATCH_SIZE_MAX),
        "rows of a snapshot sent at a time",
        default=BATCH_SIZE,
        granted=lambda given: given.batch_size,
    )
    bookmark = Option(
        BOOKMARK,
        "begins in the past: every message since, then live ones",
        default=None,
        granted=_start,
        rules=(Rule.PLAIN_SUBSCRIBE,),
    )
    bookmark_not_found = Option(
        NOT_FOUND,
        "what to do where the journal does not reach the bookmark",
        default=NotFound.NOW,
        granted=lambda given: given.replay and given.replay.not_found,
        rules=(Rule.BOOKMARK,),
    )
    rate = Option(
        RATE,
        "speed of a replay: messages or bytes a second, or a multiple of the recorded speed",
        default=None,
        granted=lambda given: given.replay and given.replay.rate,
        rules=(Rule.BOOKMARK,),
    )
    rate_max_gap = Option(
        DURATION,
        "longest silence of a replay",
        default=None,
        granted=lambda given: given.replay and given.replay.rate and given.replay.rate.max_gap_ns,
        rules=(Rule.RATE, Rule.BOOKMARK),
    )
    reduce = Option(
        REDUCE,
        "combines fields of conflated messages",
        default=None,
        usual="the topic's `merge`",
        # A registered merger is the topic's, and no option names it.
        granted=lambda given: merge if isinstance(merge := given.lane_id.merge, Reduce) else None,
        rules=(
            *(Rule.FIELDS, Rule.KEY_KEPT, Rule.INTERVAL),
            *(Rule.NOT_OF_WINDOW, Rule.NOT_OF_PROJECTION),
        ),
        source=DIFFUSION,
    )
    # Without effect, but accepted: options strings that were written for AMPS work here.
    live = Option(
        None,
        "no effect: a message is delivered once it is stored",
        default=False,
        rules=(Rule.LIVE_RATE, Rule.LIVE_PAUSE),
    )
    pause = Option(
        None,
        "begins paused",
        default=False,
        granted=lambda given: given.paused,
        rules=(Rule.BOOKMARK_OR_CHANGE, Rule.NO_RESUME),
    )
    resume = Option(None, "ends a pause", default=False, only_in_change=True)
    replace = Option(
        None,
        "these options stand in place of all earlier ones",
        default=False,
        only_in_change=True,
    )
    non_regex_topic = Option(
        None, "no effect: a topic is a pattern only with `*` or `>`", default=False
    )

    @classmethod
    def of(cls, **values: Any) -> Options:
        """Make options of values, under the names of entries; None and False say nothing."""
        said = {
            name: value
            for name, value in values.items()
            if value is not None and value is not False  # 0 is a value: `conflation=none`
        }
        return cls(said)

    @classmethod
    def parse(cls, text: str, *, is_change: bool = False) -> Options:
        """Parse an options string; spaces around `,` and `=` and one trailing comma are fine.

        `is_change`: it is that of a session's PATCH, where `resume` and `replace` exist.

        Raises:
            OptionsInvalid: unknown, repeated or malformed, with its position.
        """
        values: dict[str, Any] = {}
        positions: dict[str, int] = {}
        for name, at, value, value_at in assignments(text):
            option = TABLE.get(name)
            if option is None:
                raise OptionsInvalid(f"unknown option{hint(name, (*VALUED, *FLAGS))}", at)
            if option.only_in_change and not is_change:
                raise OptionsInvalid(f"{name}: only where a running subscription is changed", at)
            if name in positions:
                raise OptionsInvalid(f"{name} is given twice", at)
            positions[name] = at
            values[name] = option.read(value, value_at)
        join_projection(values, positions)
        return cls(values, tuple(positions.items()), is_change)

    def given(self, name: str) -> bool:
        """Return True if the text names this option."""
        return any(name == given for given, _ in self.positions)

    def position(self, name: str) -> int | None:
        """Return the 0-based character where an option stands, if it was given."""
        return dict(self.positions).get(name)

    def says(self, name: str) -> bool:
        """Return True if this option has a value, given or taken over."""
        return name in self.values

    # The positions stay its own: an error points into the text of the request.
    def over(self, defaults: Options) -> Options:
        """Return these options, and where they say nothing the others."""
        return replace(self, values={**defaults.values, **self.values})

    def without(self, name: str) -> Options:
        """Return the same, silent about one option."""
        kept = {given: value for given, value in self.values.items() if given != name}
        return replace(self, values=kept)


TABLE: Mapping[str, Option[Any]] = {
    name: entry for name, entry in vars(Options).items() if isinstance(entry, Option)
}
"""Every option by its name, in the order of the contract and of every printed form."""

FLAGS = tuple(name for name, option in TABLE.items() if option.syntax is None)
VALUED = tuple(name for name in TABLE if name not in FLAGS)

# Pairs, so that a request looks only at the rules of its own options.
_CHECKS = [(rule, name) for rule in Rule for name, option in TABLE.items() if rule in option.rules]


def conflicts(case: Case) -> Iterator[Conflict]:
    """Yield everything that is wrong with a case, in the order of the rules."""
    for rule, name in _CHECKS:
        if name in case.given and (conflict := rule.conflict(case, name)) is not None:
            yield conflict
