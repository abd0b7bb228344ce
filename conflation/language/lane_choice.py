"""Which lane a request belongs to: equal wishes in other words give equal ids."""

from __future__ import annotations

from dataclasses import replace

from conflation.lane_id import FeedId, LaneId, Window
from conflation.language.conflicts import Case, auto_of
from conflation.language.readers import AUTO
from conflation.queue_lane import match_of, merge_of
from conflation.subscription import Command
from keys.filter import Filter
from keys.merging import Merger
from keys.order import Order
from keys.projection import Projection
from keys.reducers import Reduce
from keys.spec import KeySpec


def interval_ns_of(case: Case) -> int:
    """The interval to begin with, 0 for every message: `auto` begins with its shortest step."""
    if case.command is Command.SOW:
        return 0
    if case.options.conflation == AUTO:
        auto = auto_of(case.options)
        assert auto is not None, "that would have been a conflict"
        return auto.min_ns
    assert not isinstance(case.options.conflation, str)
    return case.options.conflation or 0


def feed_id_of(case: Case, wanted: Filter | None, order: Order | None) -> FeedId:
    """The board: its key, its filter, its shape."""
    return FeedId(_key_spec(case), wanted, _shape(case, order))


def lane_id_of(
    case: Case, feed: FeedId, command: Command, *, default_pace: str, counted: bool
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
    return replace(
        every_message,
        interval_ns=interval_ns,
        pace="key" if leading else options.pace or default_pace,
        leading=leading,
        counted=options.receipt or options.timestamp or counted,
        merge=None if is_shaped else _merge(case),
        match=None if is_shaped else match_of(case.definition, feed.key_spec),
        replaces=case.definition.replaces and not is_shaped,
        never=options.never,
        flush_on=options.flush_on,
    )


def _key_spec(case: Case) -> KeySpec:
    """What a row is known by: the conflation key counts only where something is conflated."""
    options, sow_spec = case.options, case.definition.key_spec
    if options.projection is not None:
        return options.projection.grouping
    asked = options.conflation_key
    one_shot = case.command is Command.SOW
    if asked is None or one_shot or set(asked.paths) == set(sow_spec.paths):
        return sow_spec
    return asked


def _shape(case: Case, order: Order | None) -> Window | Projection | None:
    options = case.options
    if options.top_n is not None:
        return Window(order, options.top_n, options.skip_n or 0)
    return options.projection


def _merge(case: Case) -> Reduce | Merger | None:
    """The request's reducers, else the topic's; plain ones only where those are not."""
    asked, topics = case.options.reduce, merge_of(case.definition)
    return topics if asked is None or (asked.is_plain and topics is None) else asked
