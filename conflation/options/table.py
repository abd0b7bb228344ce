"""The table of options: one entry for each; everything else about an option follows from it.

An entry of `Options` says how the value is written (`syntax.py`), what it is if nothing is given,
what a granted subscription has of it, which rules it keeps (`rules.py`), and a line for the
reference page. Parsing, both printed forms, the search for conflicts and that page go over `TABLE`.
A new option is an entry here, and a lane or a stream that acts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from tidegate.conflation.auto import STEPS_NS
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options import syntax
from tidegate.conflation.options.rules import Rule
from tidegate.conflation.options.syntax import NOW, Syntax, one_of, refused, whole_number
from tidegate.conflation.subscription import (
    AUTO,
    BATCH_SIZE,
    Command,
    NotFound,
    Subscription,
    Window,
)
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
        # So `options.pace` has its type, and each default is said once, in the table.
        value: Value = options.said.get(self.name, self.default)
        return value

    def read(self, text: str | None, position: int) -> Any:
        """Return the value that a text says; True for a flag, which has no syntax.

        `text` is None for an option without `=`.

        Raises:
            OptionsInvalid: a value that is missing, malformed, or one too many; the option's name
                stands in front.
        """
        if self.syntax is None:
            if text is not None:
                raise OptionsInvalid(f"{self.name}: it takes no value", position)
            return True
        if text is None:
            raise OptionsInvalid(f"{self.name}: expected = and a value", position)
        try:
            return self.syntax.read(text, position)
        except ValueError as error:
            raise refused(self.name, error, position) from None

    def granted_text(self, subscription: Subscription) -> str | None:
        """Return the option as a subscription has it; None where that is the table's default."""
        value = self.granted(subscription)
        return None if value is None or value == self.default else self.text(value)

    def text(self, value: Any) -> str:
        """Return the option with this value, in canonical spelling."""
        # `oof=true` would suggest that `oof=false` switches off a topic's own (rule option-1).
        return self.name if self.syntax is None else f"{self.name}={self.syntax.text(value)}"


def _flag(meaning: str, **about: Any) -> Option[bool]:
    return Option(None, meaning, default=False, **about)


def _window(given: Subscription) -> Window | None:
    shape = given.lane_id.feed.shape
    return shape if isinstance(shape, Window) else None


def _begins_paused(given: Subscription) -> bool:
    # A change can pause any subscription. Only one that may have a bookmark can begin paused.
    may_replay = given.command is Command.SUBSCRIBE and not given.lane_id.oof
    return given.paused and may_replay


def _start(given: Subscription) -> object:
    if given.replay is None:
        # From now on there is nothing to replay, but `pause` needs a bookmark.
        return NOW if _begins_paused(given) else None
    return START if given.replay.start is None else given.replay.start


@dataclass(frozen=True)
class Options:
    """Options as given. The entries are the table; an instance holds the values of one text.

    `said` has the values that the text names, and those taken over from other options, under the
    names of entries; `grouping` is part of `projection`. `positions` are the characters at which
    names begin. `is_change`: they change a running subscription.
    """

    said: Mapping[str, Any] = field(default_factory=dict)
    positions: Mapping[str, int] = field(default_factory=dict, compare=False)
    is_change: bool = False

    conflation = Option(
        syntax.INTERVAL,
        "at most one message per key and interval, the newest",
        default=None,  # not 0: `conflation=none` is printed, as it overrides the topic's own
        usual="`none`",
        granted=lambda given: AUTO if given.shown.auto else given.lane_id.interval_ns,
        rules=(Rule.NO_SERIES, Rule.ANY_KEY, Rule.STEP),
    )
    conflation_key = Option(
        syntax.KEY,
        "messages with equal fields replace one another",
        default=None,
        usual="the topic's key",
        granted=lambda given: (given.lane_id.interval_ns and given.lane_id.feed.key_spec) or None,
        rules=(
            *(Rule.FIELDS, Rule.MERGE_KEPT, Rule.INTERVAL),
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
    # Rounded inwards, both of them: an interval that was not asked for is never granted.
    min = Option(
        syntax.DURATION,
        "lower bound of `auto`, rounded up to a step",
        default=None,
        usual=f"`{duration_text(STEPS_NS[0])}`",
        granted=lambda given: given.shown.auto and given.shown.auto.min_ns,
        rules=(Rule.AUTO, Rule.BOUNDS),
        source=TIDEGATE,
    )
    max = Option(
        syntax.DURATION,
        "upper bound of `auto`, rounded down to a step",
        default=None,
        usual=f"`max_age`, or `{duration_text(STEPS_NS[-1])}`",
        granted=lambda given: given.shown.auto and given.shown.auto.max_ns,
        rules=(Rule.AUTO,),
        source=TIDEGATE,
    )
    max_age = Option(
        syntax.DURATION,
        "greatest age of a row at the socket; a breach sends `late`",
        default=None,
        granted=lambda given: given.shown.max_age_ns,
        rules=(Rule.INTERVAL, Rule.AGE_OF_INTERVAL),
        source=TIDEGATE,
    )
    never = Option(
        syntax.FILTER,
        "messages that match are not conflated",
        default=None,
        granted=lambda given: given.lane_id.never,
        rules=(Rule.FIELDS, Rule.INTERVAL, Rule.NOT_OF_GROUPS),
        source=TIDEGATE,
    )
    flush_on = Option(
        syntax.FILTER,
        "a message that matches first sends what is held",
        default=None,
        granted=lambda given: given.lane_id.flush_on,
        rules=(Rule.FIELDS, Rule.INTERVAL, Rule.NOT_OF_GROUPS),
        source=TIDEGATE,
    )
    timestamp = _flag(
        "shows the publication time of a row's first message",
        granted=lambda given: given.shown.timestamp,
    )
    receipt = _flag(
        "shows how many messages a row stands for, the first and the last",
        granted=lambda given: given.shown.receipt,
        source=TIDEGATE,
    )
    oof = _flag(
        "sends a removal for each record that leaves",
        granted=lambda given: given.lane_id.oof,
        rules=(Rule.KEYED_TOPIC, Rule.NO_REPLAY),
    )
    no_empties = _flag(
        "omits deltas without a change",
        granted=lambda given: given.lane_id.no_empties,
        rules=(Rule.DELTA,),
    )
    send_keys = _flag("shows the key", granted=lambda given: given.shown.send_keys)
    no_sowkey = _flag("omits the key", granted=lambda given: given.shown.no_sowkey)
    progress = _flag(
        "sends `progress` events for positions that no row's id names",
        granted=lambda given: given.shown.progress,
        source=TIDEGATE,
    )
    select = Option(
        syntax.SELECT,
        "which fields are sent; the filter sees all",
        default=None,
        usual="all",
        granted=lambda given: given.lane_id.select,
        rules=(Rule.FIELDS, Rule.NO_COLUMNS),
    )
    projection: ClassVar[Option[Projection | None]] = Option(
        syntax.PROJECTION,
        "fields and aggregates of a row for each group",
        default=None,
        granted=lambda given: (
            shape if isinstance(shape := given.lane_id.feed.shape, Projection) else None
        ),
        rules=(Rule.FIELDS, Rule.KEYED_GROUPS, Rule.SNAPSHOT, Rule.ONE_TOPIC),
    )
    grouping = Option(
        syntax.BRACKETED,
        "the fields that make a group, and its key; with `projection`",
        default=None,
    )
    top_n = Option(
        whole_number(1, syntax.TOP_N_MAX),
        "a live window: so many records by `order_by`",
        default=None,
        granted=lambda given: (window := _window(given)) and window.top_n,
        rules=(Rule.KEYED_TOPIC, Rule.ONE_SHAPE, Rule.SNAPSHOT, Rule.ONE_TOPIC),
    )
    skip_n = Option(
        whole_number(0, syntax.SKIP_N_MAX),
        "the number of records before the window",
        default=0,
        granted=lambda given: (window := _window(given)) and window.skip_n,
        rules=(Rule.WINDOW,),
    )
    batch_size = Option(
        whole_number(1, syntax.BATCH_SIZE_MAX),
        "rows of a snapshot sent at a time",
        default=BATCH_SIZE,
        granted=lambda given: given.batch_size,
    )
    bookmark = Option(
        syntax.BOOKMARK,
        "begins in the past: every message since, then live ones",
        default=None,
        granted=_start,
        rules=(Rule.PLAIN_SUBSCRIBE,),
    )
    bookmark_not_found = Option(
        syntax.NOT_FOUND,
        "what to do where the journal does not reach the bookmark",
        default=NotFound.NOW,
        granted=lambda given: given.replay and given.replay.not_found,
        rules=(Rule.BOOKMARK,),
    )
    rate = Option(
        syntax.RATE,
        "speed of a replay: messages or bytes a second, or a multiple of the recorded speed",
        default=None,
        granted=lambda given: given.replay and given.replay.rate,
        rules=(Rule.BOOKMARK,),
    )
    rate_max_gap = Option(
        syntax.DURATION,
        "longest silence of a replay",
        default=None,
        granted=lambda given: given.replay and given.replay.rate and given.replay.rate.max_gap_ns,
        rules=(Rule.RATE, Rule.BOOKMARK),
    )
    reduce = Option(
        syntax.REDUCE,
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
    # A text that names all of the topic's own options is complete: none of them is added to it. Any
    # other one would get those back that were left out.
    no_defaults = _flag(
        "leaves out the topic's own options",
        granted=lambda given: any(
            TABLE[name].granted_text(given) is None for name in given.defaults
        ),
        source=TIDEGATE,
    )
    # Without effect, but accepted: options strings that were written for AMPS work here.
    live = _flag(
        "no effect: a message is delivered once it is stored",
        rules=(Rule.LIVE_RATE, Rule.LIVE_PAUSE),
    )
    pause = _flag(
        "begins paused",
        granted=_begins_paused,
        rules=(Rule.BOOKMARK_OR_CHANGE, Rule.NO_RESUME),
    )
    resume = _flag("ends a pause", only_in_change=True)
    replace = _flag(
        "these options replace all earlier ones",
        only_in_change=True,
    )
    non_regex_topic = _flag("no effect: a topic is a pattern only with `*` or `>`")

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
        said: dict[str, Any] = {}
        positions: dict[str, int] = {}
        for name, at, value, value_at in syntax.assignments(text):
            option = TABLE.get(name)
            if option is None:
                hint = syntax.hint(name, (*VALUED, *FLAGS))
                raise OptionsInvalid(f"unknown option {syntax.shown(name)}{hint}", at)
            if option.only_in_change and not is_change:
                raise OptionsInvalid(f"{name}: only where a running subscription is changed", at)
            if name in positions:
                raise OptionsInvalid(f"{name} is given twice", at)
            positions[name] = at
            said[name] = option.read(value, value_at)
        syntax.join_projection(said, positions)
        return cls(said, positions, is_change)

    # The positions stay its own: an error points into the text of the request.
    def over(self, defaults: Options) -> Options:
        """Return these options, and where they say nothing the others."""
        return replace(self, said={**defaults.said, **self.said})

    def without(self, name: str) -> Options:
        """Return the same, silent about one option."""
        kept = {given: value for given, value in self.said.items() if given != name}
        return replace(self, said=kept)

    def text(self) -> str:
        """Return a text that parses to these options, in the order of the table."""
        return ",".join(
            option.text(self.said[name]) for name, option in TABLE.items() if name in self.said
        )


TABLE: Mapping[str, Option[Any]] = {
    name: entry for name, entry in vars(Options).items() if isinstance(entry, Option)
}
"""Every option by its name, in the order of the contract and of every printed form."""

FLAGS = tuple(name for name, option in TABLE.items() if option.syntax is None)
VALUED = tuple(name for name in TABLE if name not in FLAGS)
