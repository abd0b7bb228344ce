"""Grants: a request, the topic's own options and the defaults, made one subscription."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tidegate.conflation.definition import Definition
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.lane_id import FeedId, LaneId, Window
from tidegate.conflation.options.conflicts import OptionsInContext, auto_of, conflicts
from tidegate.conflation.options.parse import Options
from tidegate.conflation.options.readers import AUTO, NOW, refused
from tidegate.conflation.subscription import (
    BATCH_SIZE,
    Command,
    NotFound,
    Replay,
    Shown,
    Subscription,
    match_of,
    merge_of,
)
from tidegate.keys.errors import FilterInvalid, KeysError
from tidegate.keys.filter import Filter
from tidegate.keys.merging import Merger
from tidegate.keys.order import Order
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark

# Which lane a request belongs to: equal wishes in other words give equal ids.


def interval_ns_of(case: OptionsInContext) -> int:
    """The interval to begin with, 0 for every message: `auto` begins with its shortest step."""
    if case.command is Command.SOW:
        return 0
    if case.options.conflation == AUTO:
        auto = auto_of(case.options)
        assert auto is not None, "that would have been a conflict"
        return auto.min_ns
    assert not isinstance(case.options.conflation, str)
    return case.options.conflation or 0


def feed_id_of(case: OptionsInContext, wanted: Filter | None, order: Order | None) -> FeedId:
    """The board: its key, its filter, its shape."""
    return FeedId(_key_spec(case), wanted, _shape(case, order))


def lane_id_of(
    case: OptionsInContext, feed: FeedId, command: Command, *, default_pace: str, counted: bool
) -> LaneId:
    """The lane on that board; `command` is the one that is granted.

    What makes no difference stands at its default, so that whoever gets the same shares.
    """
    options = case.options
    select = options.select
    every_message = LaneId(
        feed,
        delta=command.is_delta,
        oof=command is not Command.SOW and (options.oof or isinstance(feed.shape, Window)),
        no_empties=options.no_empties and command.is_delta,
        select=None if select is None or select.keeps_all else select,
    )
    interval_ns = interval_ns_of(case)
    if not interval_ns:
        return every_message
    leading = options.edge == "leading"
    is_shaped = feed.shape is not None
    merge = None if is_shaped else _merge(case)
    has_deltas = command.is_delta and merge is None  # each combined value stands by itself
    return replace(
        every_message,
        interval_ns=interval_ns,
        pace="key" if leading else options.pace or default_pace,
        leading=leading,
        delta=has_deltas,
        no_empties=options.no_empties and has_deltas,
        counted=options.receipt or options.timestamp or counted,
        merge=merge,
        match=None if is_shaped else match_of(case.definition, feed.key_spec),
        replaces=case.definition.replaces and not is_shaped,
        never=options.never,
        flush_on=options.flush_on,
    )


def _key_spec(case: OptionsInContext) -> KeySpec:
    """What a row is known by: the conflation key counts only where something is conflated."""
    options, sow_spec = case.options, case.definition.key_spec
    if options.projection is not None:
        return options.projection.grouping
    asked = options.conflation_key
    one_shot = case.command is Command.SOW
    if asked is None or one_shot or set(asked.paths) == set(sow_spec.paths):
        return sow_spec
    return asked


def _shape(case: OptionsInContext, order: Order | None) -> Window | Projection | None:
    options = case.options
    if options.top_n is not None:
        return Window(order, options.top_n, options.skip_n or 0)
    return options.projection


def _merge(case: OptionsInContext) -> Reduce | Merger | None:
    """The request's reducers, else the topic's; plain ones only where those are not."""
    asked, topics = case.options.reduce, merge_of(case.definition)
    return topics if asked is None or (asked.is_plain and topics is None) else asked


_FULL = {
    Command.DELTA_SUBSCRIBE: Command.SUBSCRIBE,
    Command.SOW_AND_DELTA_SUBSCRIBE: Command.SOW_AND_SUBSCRIBE,
}


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks for of one topic, unread texts among it.

    `defaults` are the topic's own options, of a change also the earlier ones. `counted` says that
    the format shows which message was the first that a row stands for, `resume` is an id that was
    seen before; `by_pattern`: the topic is one of those that a pattern takes.
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


@dataclass(frozen=True, slots=True)
class Grant:
    """What is given, and what the asker should know about it."""

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
    """The subscription alone; arguments as in `Request`.

    Raises:
        OptionsInvalid: as `grant`.
        FilterInvalid: as `grant`.
    """
    request = Request(
        *(topic, definition, options, defaults or Options(), command),
        *(filter_text, order_text, default_pace, resume, counted),
    )
    return grant(request).subscription


def grant(request: Request) -> Grant:
    """Decide a request: its own options win over the topic's, one by one.

    Equal wishes in other words give equal lanes: what makes no difference is at its default.

    Raises:
        OptionsInvalid: a conflict with the position of the option that is in the way, an order
            or a command that is none; positions are those of the request's own text.
        FilterInvalid: the filter, with the position in its text.
    """
    case, left_out = _settled(request)
    order = _order(request, case)
    command = _granted_command(case)
    feed = feed_id_of(case, _filter(request, case), order)
    subscription = Subscription(
        topic=request.topic,
        command=command,
        lane_id=lane_id_of(
            case, feed, command, default_pace=request.default_pace, counted=request.counted
        ),
        resume=request.resume,
        replay=_replay(case.options),
        order=order,
        batch_size=case.options.batch_size or BATCH_SIZE,
        paused=case.options.pause,
        shown=_shown(case),
        counted=request.counted or case.options.receipt or case.options.timestamp,
    )
    return Grant(subscription, (*left_out, *_warnings(case, subscription)))


def _settled(request: Request) -> tuple[OptionsInContext, list[str]]:
    """The case without conflicts: a topic's option gives way to what the request says."""
    options, left_out = request.options.over(request.defaults), list[str]()
    while True:
        command = _command(request.command, request.definition, options)
        case = OptionsInContext(request.definition, options, command, request.by_pattern)
        conflict = next(conflicts(case), None)
        if conflict is None:
            return case, left_out
        topics_own = [name for name in conflict.names if not request.options.given(name)]
        if not topics_own:
            name = conflict.names[0]
            raise OptionsInvalid(conflict.detail, request.options.position(name))
        options = options.without(topics_own[0])
        whose = "the earlier" if request.options.is_change else "the topic's own"
        left_out.append(f"{whose} {topics_own[0]} is left out: {conflict.detail}")


def _command(text: str | None, definition: Definition, options: Options) -> Command:
    if text is None:
        begins_with_state = bool(definition.key_spec) and options.bookmark is None
        return Command.SOW_AND_SUBSCRIBE if begins_with_state else Command.SUBSCRIBE
    if text not in set(Command):
        raise OptionsInvalid(f"command: expected one of {', '.join(Command)}")
    command = Command(text)
    if command.queries and not (definition.key_spec or definition.retains):
        raise OptionsInvalid(f"command {text} needs a topic that keeps records")
    return command


def _granted_command(case: OptionsInContext) -> Command:
    """Where there can be no deltas, values are sent, as in AMPS."""
    return case.command if _has_deltas(case) else _FULL.get(case.command, case.command)


def _has_deltas(case: OptionsInContext) -> bool:
    values_only = case.definition.values_only or not case.has_fields
    return case.keeps_records and not values_only


def _filter(request: Request, case: OptionsInContext) -> Filter | None:
    if not request.filter_text.strip():
        return None
    if not case.has_fields:
        raise FilterInvalid("a filter needs messages with fields, on a topic of type json", 0)
    return Filter.parse(request.filter_text)


def _order(request: Request, case: OptionsInContext) -> Order | None:
    if not request.order_text.strip():
        return None
    if not case.has_fields:
        raise OptionsInvalid("order_by: it needs messages with fields", 0)
    try:
        return Order.parse(request.order_text)
    except KeysError as error:
        raise refused("order_by", error, None) from None


def _replay(options: Options) -> Replay | None:
    """From `now` on there is nothing to replay."""
    if options.bookmark is None or options.bookmark == NOW:
        return None
    start = None if isinstance(options.bookmark, str) else options.bookmark
    not_found = options.bookmark_not_found if isinstance(start, Bookmark) else None
    rate = None if options.rate is None else replace(options.rate, max_gap_ns=options.rate_max_gap)
    return Replay(start, not_found or NotFound.NOW, rate)


def _shown(case: OptionsInContext) -> Shown:
    options = case.options
    is_live = case.command is not Command.SOW
    return Shown(
        timestamp=options.timestamp,
        receipt=options.receipt,
        send_keys=options.send_keys,
        no_sowkey=options.no_sowkey,
        progress=options.progress,
        max_age_ns=options.max_age if is_live else None,
        auto=auto_of(options) if is_live and options.conflation == AUTO else None,
    )


def _warnings(case: OptionsInContext, subscription: Subscription) -> Iterator[str]:
    options, command = case.options, subscription.command
    if command is not case.command:
        yield f"this topic has no deltas, so {case.command} is answered as {command}"
    if command.is_delta and subscription.lane_id.merge is not None:
        yield "combined messages have no deltas, so every row is a full value"
    if command is Command.SOW and case.has_interval:
        yield "a sow is one snapshot, so nothing of it is conflated"
    if command is Command.SOW and options.oof:
        yield "a sow is one snapshot, so no removal follows it"
    if options.live:
        yield "a message is delivered once it is stored, so live changes nothing"
    if subscription.replay is None and options.bookmark is not None:
        for name in ("bookmark_not_found", "rate"):
            if options.says(name):
                yield f"from now on there is nothing to replay, so {name} changes nothing"
    if subscription.order is not None and not command.queries:
        yield "order_by is for the rows of a snapshot, and this command begins without one"
