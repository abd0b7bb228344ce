"""Grants: the subscription that a request and the topic's own options give; its printed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tidegate.conflation.auto import auto_within
from tidegate.conflation.definition import Definition, match_of, merge_of
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.options.rules import Case, Conflict, Rule
from tidegate.conflation.options.syntax import NOW, refused
from tidegate.conflation.options.table import TABLE, Options
from tidegate.conflation.subscription import (
    AUTO,
    Auto,
    Command,
    FeedId,
    LaneId,
    NotFound,
    Replay,
    Shown,
    Subscription,
    Window,
)
from tidegate.keys.errors import FilterInvalid, KeysError
from tidegate.keys.filter import Filter
from tidegate.keys.merging import Merger
from tidegate.keys.order import Order
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark

TEXTS_KEPT = 1_024


@dataclass(frozen=True, slots=True)
class Request:
    """A subscriber's request for one topic; filter and order are still texts.

    `defaults` are the topic's own options, `earlier` those before a change. `counted`: the format
    shows the first message that a row stands for. `resume` is the id after which a reader
    continues. `by_pattern`: the topic is one of those that a pattern matches.
    """

    topic: str
    definition: Definition
    options: Options
    defaults: Options = field(default_factory=Options)
    command: str | None = None
    filter_text: str = ""
    order_text: str = ""
    default_pace: str = "batch"
    resume: Bookmark | None = None
    counted: bool = False
    by_pattern: bool = False
    earlier: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class Grant:
    """The subscription that is granted, and warnings about options that do not apply."""

    subscription: Subscription
    warnings: tuple[str, ...] = ()


def decide(
    topic: str,
    definition: Definition,
    options: Options,
    *,
    defaults: Options | None = None,
    command: str | None = None,
    filter_text: str = "",
    order_text: str = "",
    default_pace: str = "batch",
    resume: Bookmark | None = None,
    counted: bool = False,
) -> Subscription:
    """Return the granted subscription without warnings; arguments as in `Request`.

    Raises:
        OptionsInvalid: as `grant`.
        FilterInvalid: as `grant`.
    """
    request = Request(
        *(topic, definition, options, defaults or Options(), command),
        *(filter_text, order_text, default_pace, resume, counted),
    )
    return grant(request).subscription


# The commands that send values where a topic has no deltas.
_FULL = {
    Command.DELTA_SUBSCRIBE: Command.SUBSCRIBE,
    Command.SOW_AND_DELTA_SUBSCRIBE: Command.SOW_AND_SUBSCRIBE,
}


@dataclass(frozen=True, slots=True)
class Resolved:
    """Options without conflicts, those of the topic included, and the requested command."""

    definition: Definition
    options: Options
    command: Command

    @property
    def interval_ns(self) -> int:
        """The interval to begin with, 0 for every message: `auto` begins with its shortest step."""
        # One string of options serves a query and the subscription after it (rule option-5).
        if self.command is Command.SOW:
            return 0
        if self.auto is not None:
            return self.auto.min_ns
        assert not isinstance(self.options.conflation, str)
        return self.options.conflation or 0

    @property
    def auto(self) -> Auto | None:
        """The steps between which `conflation=auto` moves."""
        options = self.options
        if options.conflation != AUTO:
            return None
        auto = auto_within(options.min, options.max, options.max_age)
        assert auto is not None, "that would have been a conflict"
        return auto

    @property
    def granted_command(self) -> Command:
        """The command; if there can be no deltas, values are sent, as in AMPS."""
        definition = self.definition
        values_only = definition.values_only or not definition.has_fields
        if definition.keeps_records and not values_only:
            return self.command
        return _FULL.get(self.command, self.command)


def grant(request: Request) -> Grant:
    """Decide a request: its options precede those of the topic, or replace all (`no_defaults`).

    Requests with the same meaning get equal lanes.

    Raises:
        OptionsInvalid: a conflict, with the position of an option in the request's text; an invalid
            order or command.
        FilterInvalid: the filter, with the position in its text.
    """
    resolved, left_out = _resolve(request)
    options = resolved.options
    order = _order(request)
    command = resolved.granted_command
    feed = FeedId(_key_spec(resolved), _filter(request), _shape(options, order))
    # An envelope shows a row's first message: rows are counted for it, too.
    is_counted = request.counted or options.receipt or options.timestamp
    subscription = Subscription(
        topic=request.topic,
        command=command,
        lane_id=_lane_id(resolved, feed, default_pace=request.default_pace, counted=is_counted),
        resume=request.resume,
        replay=_replay(options),
        order=order,
        batch_size=options.batch_size,
        paused=options.pause,
        shown=_shown(resolved),
        counted=is_counted,
        defaults=frozenset(request.defaults.said),
    )
    return Grant(subscription, (*left_out, *_warnings(resolved, subscription)))


def _resolve(request: Request) -> tuple[Resolved, list[str]]:
    """Resolve conflicts: an option of the topic is left out, with a warning, not the request's."""
    options, left_out = request.options.over(request.earlier), list[str]()
    if not options.no_defaults:
        options = options.over(request.defaults)
    definition, is_change = request.definition, request.options.is_change
    # Leaving out an option may resolve other conflicts, or change the command.
    while True:
        command = _command(request.command, definition, options)
        case = Case(definition, options.said, command, request.by_pattern, is_change)
        conflict = next(conflicts(case), None)
        if conflict is None:
            return Resolved(definition, options, command), left_out
        # Options in the request's own text are never left out.
        others = [name for name in conflict.names if name not in request.options.positions]
        if not others:
            name = conflict.names[0]
            raise OptionsInvalid(conflict.detail, request.options.positions.get(name))
        options = options.without(others[0])
        whose = "the earlier" if others[0] in request.earlier.said else "the topic's own"
        left_out.append(f"{whose} {others[0]} is left out: {conflict.detail}")


# Pairs, so that a request looks only at the rules of its own options.
_CHECKS = [(rule, name) for rule in Rule for name, option in TABLE.items() if rule in option.rules]


def conflicts(case: Case) -> Iterator[Conflict]:
    """Yield everything that is wrong with a case, in the order of the rules."""
    for rule, name in _CHECKS:
        if name in case.given and (conflict := rule.conflict(case, name)) is not None:
            yield conflict


def _command(text: str | None, definition: Definition, options: Options) -> Command:
    if text is None:
        # A snapshot before a replay would show the newest values first, then older ones.
        begins_with_state = bool(definition.key_spec) and options.bookmark is None
        return Command.SOW_AND_SUBSCRIBE if begins_with_state else Command.SUBSCRIBE
    if text not in set(Command):
        raise OptionsInvalid(f"command: expected one of {', '.join(Command)}")
    command = Command(text)
    if command.queries and not definition.keeps_records:
        raise OptionsInvalid(f"command {text} needs a topic that keeps records")
    return command


def _lane_id(resolved: Resolved, feed: FeedId, *, default_pace: str, counted: bool) -> LaneId:
    """Choose the lane on a board.

    Options without effect have their defaults, so that subscribers of the same rows share a lane.
    """
    options, command, definition = resolved.options, resolved.granted_command, resolved.definition
    select = options.select
    # A client needs the removals of a window: otherwise it would collect more and more rows.
    has_removals = options.oof or isinstance(feed.shape, Window)
    every_message = LaneId(
        feed,
        delta=command.is_delta,
        oof=has_removals and command is not Command.SOW,
        no_empties=options.no_empties and command.is_delta,
        select=None if select is None or select.keeps_all else select,
    )
    if not resolved.interval_ns:
        return every_message
    # A leading edge sends a quiet key at once and alone, so `leading` implies `pace=key`.
    leading = options.edge == "leading"
    is_shaped = feed.shape is not None
    merge = None if is_shaped else _merge(resolved)
    # A combined value is made of one interval's messages, so no earlier one is its base. A row with
    # another key than its record's would patch the value of another row.
    has_deltas = command.is_delta and merge is None and _has_rows_of_records(definition, feed)
    return replace(
        every_message,
        interval_ns=resolved.interval_ns,
        pace="key" if leading else options.pace or default_pace,
        leading=leading,
        delta=has_deltas,
        no_empties=options.no_empties and has_deltas,
        counted=counted,
        merge=merge,
        match=None if is_shaped else match_of(definition, feed.key_spec),
        replaces=definition.replaces and not is_shaped,
        never=options.never,
        flush_on=options.flush_on,
    )


def _has_rows_of_records(definition: Definition, feed: FeedId) -> bool:
    """Return True if each row stands for one record of the topic, or for one group."""
    # `_key_spec` has turned a conflation key of the same fields into the topic's own.
    return isinstance(feed.shape, Projection) or feed.key_spec == definition.key_spec


def _key_spec(resolved: Resolved) -> KeySpec:
    """Choose the key of rows: a conflation key counts only where something is conflated."""
    options, definition = resolved.options, resolved.definition
    if options.projection is not None:
        return options.projection.grouping
    if not resolved.interval_ns:
        return definition.key_spec
    asked, own = options.conflation_key, definition.conflation_key
    # The topic's key in another order is the topic's key: its subscribers share a board.
    return own if asked is None or set(asked.paths) == set(own.paths) else asked


def _shape(options: Options, order: Order | None) -> Window | Projection | None:
    if options.top_n is not None:
        return Window(order, options.top_n, options.skip_n)
    return options.projection


def _merge(resolved: Resolved) -> Reduce | Merger | None:
    """Choose the request's reducers, else the topic's.

    Plain ones do what a lane without reducers does: they count only if the topic has others.
    """
    asked, topics = resolved.options.reduce, merge_of(resolved.definition)
    return topics if asked is None or (asked.is_plain and topics is None) else asked


def _filter(request: Request) -> Filter | None:
    if not request.filter_text.strip():
        return None
    if not request.definition.has_fields:
        raise FilterInvalid("a filter needs messages with fields, on a topic of type json", 0)
    return Filter.parse(request.filter_text)


def _order(request: Request) -> Order | None:
    if not request.order_text.strip():
        return None
    if not request.definition.has_fields:
        raise OptionsInvalid("order_by: it needs messages with fields", 0)
    try:
        return Order.parse(request.order_text)
    except KeysError as error:
        raise refused("order_by", error, None) from None


def _replay(options: Options) -> Replay | None:
    if options.bookmark is None or options.bookmark == NOW:  # then there is nothing to replay
        return None
    start = None if isinstance(options.bookmark, str) else options.bookmark
    not_found = options.bookmark_not_found
    # The journal's beginning is always found; a time before the journal begins at its first
    # message. `fail` also says what happens to a reader that comes back too late.
    if not isinstance(start, Bookmark) and not_found is not NotFound.FAIL:
        not_found = NotFound.NOW
    rate = None if options.rate is None else replace(options.rate, max_gap_ns=options.rate_max_gap)
    return Replay(start, not_found, rate)


def _shown(resolved: Resolved) -> Shown:
    options = resolved.options
    # A query is answered with records of any age, and has no interval to move.
    is_live = resolved.command is not Command.SOW
    return Shown(
        timestamp=options.timestamp,
        receipt=options.receipt,
        send_keys=options.send_keys,
        no_sowkey=options.no_sowkey,
        progress=options.progress,
        max_age_ns=options.max_age if is_live else None,
        auto=resolved.auto if is_live else None,
    )


def _warnings(resolved: Resolved, subscription: Subscription) -> Iterator[str]:
    options, command = resolved.options, subscription.command
    if command is not resolved.command:
        yield f"this topic has no deltas, so {resolved.command} is answered as {command}"
    if command.is_delta and subscription.lane_id.merge is not None:
        yield "combined messages have no deltas, so every row is a full value"
    elif command.is_delta and not _has_rows_of_records(
        resolved.definition, subscription.lane_id.feed
    ):
        yield "rows of another key than the topic's have no deltas, so every row is a full value"
    if command is Command.SOW and options.conflation:
        yield "a sow is one snapshot, so nothing of it is conflated"
    if command is Command.SOW and options.oof:
        yield "a sow is one snapshot, so no removal follows it"
    if options.live:
        yield "a message is delivered once it is stored, so live changes nothing"
    if subscription.replay is None and options.bookmark is not None:
        for name in ("bookmark_not_found", "rate"):
            if name in options.said:
                yield f"from now on there is nothing to replay, so {name} changes nothing"
    if subscription.order is not None and not command.queries:
        yield "order_by is for the rows of a snapshot, and this command begins without one"


def granted(subscription: Subscription) -> str:
    """Return the normalized form: what was granted, as options that ask for exactly this.

    Only values equal to the table's default are left out. A value that a setting or the topic could
    change is shown even where it is the usual one, and `no_defaults` where the topic has an option
    that this form does not name. With the same command, filter and order, parsing and deciding it
    again gives an equal subscription.
    """
    # A place is no option, and each client that returns has its own.
    if subscription.resume is not None:
        subscription = replace(subscription, resume=None)
    return _granted_text(subscription)


# Kept, as is the text of a lane: the hello of every stream shows both, and printing them costs more
# than joining the lane.
@lru_cache(TEXTS_KEPT)
def _granted_text(subscription: Subscription) -> str:
    return ",".join(_granted(subscription))


def _granted(subscription: Subscription) -> Iterator[str]:
    for option in TABLE.values():
        if (text := option.granted_text(subscription)) is not None:
            yield text


@lru_cache(TEXTS_KEPT)
def lane_text(lane_id: LaneId) -> str:
    """Return a text that is unique among the lanes of a topic: options, then the rest after `&`.

    A lane with counted rows shows `receipt`, whichever of its members show it.
    """
    # A subscription of this lane whose own settings are all defaults, so that only the lane shows.
    shown = Shown(receipt=lane_id.counted)
    anyone = Subscription("", Command.SUBSCRIBE, lane_id, shown=shown)
    feed = lane_id.feed
    parameters = {
        "command": "delta_subscribe" if lane_id.delta else None,
        "filter": feed.filter,
        "order_by": feed.shape.order if isinstance(feed.shape, Window) else None,
    }
    texts = (f"&{name}={value}" for name, value in parameters.items() if value is not None)
    return granted(anyone) + "".join(texts)
