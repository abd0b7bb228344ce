"""Grants: a request, the topic's own options and the defaults, made one subscription."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from conflation.bookmark import Bookmark
from conflation.definition import Definition
from conflation.errors import OptionsInvalid
from conflation.language.conflicts import Case, auto_of, conflicts
from conflation.language.lane_choice import feed_id_of, lane_id_of
from conflation.language.options import Options
from conflation.language.readers import AUTO, NOW, refused
from conflation.subscription import (
    BATCH_SIZE,
    Command,
    NotFound,
    Replay,
    Shown,
    Subscription,
)
from keys.errors import FilterInvalid, KeysError
from keys.filter import Filter
from keys.order import Order

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


def _settled(request: Request) -> tuple[Case, list[str]]:
    """The case without conflicts: a topic's option gives way to what the request says."""
    options, left_out = request.options.over(request.defaults), list[str]()
    while True:
        command = _command(request.command, request.definition, options)
        case = Case(request.definition, options, command, request.by_pattern)
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


def _granted_command(case: Case) -> Command:
    """Where there can be no deltas, values are sent, as in AMPS."""
    return case.command if _has_deltas(case) else _FULL.get(case.command, case.command)


def _has_deltas(case: Case) -> bool:
    values_only = case.definition.values_only or not case.has_fields
    return case.keeps_records and not values_only


def _filter(request: Request, case: Case) -> Filter | None:
    if not request.filter_text.strip():
        return None
    if not case.has_fields:
        raise FilterInvalid("a filter needs messages with fields, on a topic of type json", 0)
    return Filter.parse(request.filter_text)


def _order(request: Request, case: Case) -> Order | None:
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


def _shown(case: Case) -> Shown:
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


def _warnings(case: Case, subscription: Subscription) -> Iterator[str]:
    options, command = case.options, subscription.command
    if command is not case.command:
        yield f"this topic has no deltas, so {case.command} is answered as {command}"
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
