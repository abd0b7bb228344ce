"""Rows and fields: a subscription or a query, narrowed to what its subject may see.

The narrowed filter and fields are part of the lane's identity. So lanes are shared between subjects
of equal entitlement and no others, and live rows, snapshots, resumes, deltas and windows are
narrowed in one place.

What could show hidden values by another way is refused: whatever cannot be shown to be safe here is
403, never widened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidegate.app.access.grants import Entitlement, Grants
from tidegate.app.refusals import Refused
from tidegate.conflation.definition import Definition, Kind, merge_of
from tidegate.conflation.subscription import Subscription
from tidegate.keys.filter import Filter, conjunction
from tidegate.keys.jsontext import overlap
from tidegate.keys.merging import Merger
from tidegate.keys.order import Order
from tidegate.keys.path import FieldPath
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.select import Select


def entitlement_of(grants: Grants | None, definition: Definition, topic: str) -> Entitlement | None:
    """Return what may be seen of a topic if that is not all of it.

    Raises:
        Refused: forbidden, also for a topic whose rows and fields cannot be narrowed.
    """
    if grants is None:
        return None
    found = grants.required(topic)
    if found.is_whole:
        return None
    if definition.kind not in (Kind.JSON, Kind.SERIES):
        raise _refused("The token grants parts of messages, and those of this topic have none.")
    if found.select is not None:
        spec = definition.key_spec
        # A message without named fields, such as a list, would pass a selection whole. A key of
        # named fields rules that out; a hidden key would show in every envelope.
        if not spec or not all(isinstance(path.steps[0], str) for path in spec.paths):
            raise _refused("The token grants fields, and this topic has no key of named fields.")
        _check(found.select, spec.paths, "The key of the topic")
        _check_merge(found.select, definition.merge)
    return found


def narrowed(
    subscription: Subscription, entitlement: Entitlement, definition: Definition
) -> Subscription:
    """Return the subscription with the rows and fields of the entitlement alone.

    Raises:
        Refused: forbidden, for options that could show others.
    """
    lane = subscription.lane_id
    feed = lane.feed
    if isinstance(feed.shape, Projection):
        raise _refused("A projection needs all rows and fields of the topic.")
    if entitlement.filter is not None:
        # With every message, a removal carries the record that does not match any more.
        if lane.oof and not lane.interval_ns:
            raise _refused("oof and windows need an interval here: a removal would show its row.")
        own = () if feed.filter is None else (feed.filter,)
        feed = replace(feed, filter=conjunction(entitlement.filter, *own))
    if entitlement.select is None:
        return replace(subscription, lane_id=replace(lane, feed=feed))
    _check_filters(entitlement.select, lane.feed.filter, lane.never, lane.flush_on)
    _check_order(entitlement.select, subscription.order)
    _check(entitlement.select, feed.key_spec.paths, "conflation_key")
    if lane.merge is not None and lane.merge != merge_of(definition):
        # `/secret:max@id` would write a hidden field into a granted one.
        raise _refused("reduce needs all fields of the topic.")
    select, merge = both(entitlement.select, lane.select), lane.merge
    if isinstance(merge, Reduce):
        # What is hidden needs no result, and the names of hidden fields show in no answer.
        shown = tuple(it for it in merge.columns if _shows(entitlement.select, it.target))
        merge = None if Reduce(shown).is_plain else Reduce(shown)
    lane = replace(lane, feed=feed, select=select, merge=merge)
    return replace(subscription, lane_id=lane)


def narrowed_query(
    entitlement: Entitlement, wanted: Filter | None, order: Order | None, select: Select | None
) -> tuple[Filter | None, Select | None]:
    """Return the filter and the fields of a query of records, as `narrowed` does.

    Raises:
        Refused: forbidden, for a filter or an order by hidden fields.
    """
    if entitlement.select is not None:
        _check_filters(entitlement.select, wanted)
        _check_order(entitlement.select, order)
        select = both(entitlement.select, select)
    if entitlement.filter is not None:
        own = () if wanted is None else (wanted,)
        wanted = conjunction(entitlement.filter, *own)
    return wanted, select


def both(granted: Select, asked: Select | None) -> Select:
    """Return the selection of what is granted and asked for."""
    return granted if asked is None else granted.within(asked)


def _check_filters(select: Select, *filters: Filter | None) -> None:
    for each in filters:
        if each is not None:
            _check(select, each.paths, "A filter")


def _check_order(select: Select, order: Order | None) -> None:
    if order is not None:
        _check(select, [column.path for column in order.columns], "An order")


def _check(select: Select, paths: Iterable[FieldPath], what: str) -> None:
    """Refuse hidden fields: which rows come, or in what order, would tell their values."""
    if not all(select.keeps(path) for path in paths):
        raise _refused(f"{what} may only use the fields that the token grants.")


def _check_merge(select: Select, merge: Reduce | Merger | None) -> None:
    """Refuse a topic whose own `merge` may write a hidden field into a granted one.

    A lane merges and then selects, and so does a full queue, whatever the subscription asks for.
    """
    # The operator's function sees the whole message, and may put anything anywhere.
    if isinstance(merge, Merger):
        raise _refused("The token grants fields, and the topic merges whole messages.")
    for column in () if merge is None else merge.columns:
        # A result in its field's own place is shown and hidden with it.
        is_moved = column.name is not None and _shows(select, column.target)
        if is_moved and not select.keeps(column.path):
            raise _refused("The topic's merge writes hidden fields into granted ones.")


def _shows(granted: Select, place: tuple[str, ...]) -> bool:
    """Return True if a place is shown, or something in it."""
    return any(it.keep and overlap(it.steps, place) for it in granted.directives)


def _refused(detail: str) -> Refused:
    return Refused("forbidden", detail)
