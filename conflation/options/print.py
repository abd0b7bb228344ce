"""The normalised form: what was granted, as options that ask for exactly this."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from tidegate.conflation.lane_id import LaneId, Window
from tidegate.conflation.options.parse import Options
from tidegate.conflation.options.readers import AUTO, FLAGS, NOW
from tidegate.conflation.subscription import BATCH_SIZE, NotFound, Replay, Shown, Subscription
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.text.bookmark import START
from tidegate.keys.text.duration import duration_text
from tidegate.keys.text.rate import rate_text
from tidegate.keys.text.time import time_text


def granted(subscription: Subscription) -> str:
    """The options of a subscription in the order of the contract's table, canonically spelled.

    What matters is spelled out though it be a default. With the same command, filter and order,
    parsing and deciding it again gives an equal subscription.
    """
    shown, lane_id = subscription.shown, subscription.lane_id
    parts = [
        *_interval(lane_id, shown),
        *_exceptions(lane_id),
        *(name for name in ("timestamp", "receipt") if getattr(shown, name)),
        *_flags(lane_id),
        *(name for name in ("send_keys", "no_sowkey", "progress") if getattr(shown, name)),
        *_shape(lane_id),
    ]
    if subscription.batch_size != BATCH_SIZE:
        parts.append(f"batch_size={subscription.batch_size}")
    parts += _replay(subscription)
    parts += _reduce(lane_id)
    if subscription.paused:
        parts.append("pause")
    return ",".join(parts)


def lane_text(lane_id: LaneId) -> str:
    """What tells a lane from the others of its topic, for people: options, then the rest after `&`.

    A lane with counted rows shows `receipt`, whatever it is that its members show of it.
    """
    parts = [
        *_interval(lane_id, Shown()),
        *_exceptions(lane_id),
        *(["receipt"] if lane_id.counted else []),
        *_flags(lane_id),
        *_shape(lane_id),
        *_reduce(lane_id),
    ]
    feed = lane_id.feed
    order = feed.shape.order if isinstance(feed.shape, Window) else None
    beside = {
        "command": "delta_subscribe" if lane_id.delta else None,
        "filter": feed.filter,
        "order_by": order,
    }
    texts = (f"&{name}={value}" for name, value in beside.items() if value is not None)
    return ",".join(parts) + "".join(texts)


def _interval(lane_id: LaneId, shown: Shown) -> Iterator[str]:
    if not lane_id.interval_ns:
        yield "conflation=none"
        return
    yield f"conflation={AUTO if shown.auto else duration_text(lane_id.interval_ns)}"
    if lane_id.feed.key_spec:
        yield f"conflation_key={lane_id.feed.key_spec}"
    yield f"pace={lane_id.pace}"
    if lane_id.leading:
        yield "edge=leading"
    if shown.auto is not None:
        yield f"min={duration_text(shown.auto.min_ns)}"
        yield f"max={duration_text(shown.auto.max_ns)}"
    if shown.max_age_ns is not None:
        yield f"max_age={duration_text(shown.max_age_ns)}"


def _exceptions(lane_id: LaneId) -> Iterator[str]:
    for name, matching in (("never", lane_id.never), ("flush_on", lane_id.flush_on)):
        if matching is not None:
            yield f"{name}=[{matching}]"


def _flags(lane_id: LaneId) -> Iterator[str]:
    return (name for name in ("oof", "no_empties") if getattr(lane_id, name))


def _shape(lane_id: LaneId) -> Iterator[str]:
    if lane_id.select is not None:
        yield f"select={lane_id.select}"
    shape = lane_id.feed.shape
    if isinstance(shape, Projection):
        yield str(shape)
    elif isinstance(shape, Window):
        yield f"top_n={shape.top_n}"
        if shape.skip_n:
            yield f"skip_n={shape.skip_n}"


def _replay(subscription: Subscription) -> Iterator[str]:
    replay = subscription.replay
    if replay is None:
        if subscription.paused:
            yield f"bookmark={NOW}"
        return
    yield f"bookmark={_start(replay)}"
    if replay.not_found is not NotFound.NOW:
        yield f"bookmark_not_found={replay.not_found}"
    if replay.rate is not None:
        yield f"rate={rate_text(replay.rate)}"
        if replay.rate.max_gap_ns is not None:
            yield f"rate_max_gap={duration_text(replay.rate.max_gap_ns)}"


def _start(replay: Replay) -> str:
    if replay.start is None:
        return START
    return time_text(replay.start) if isinstance(replay.start, int) else str(replay.start)


def _reduce(lane_id: LaneId) -> Iterator[str]:
    """A registered merger is the topic's, and no option names it."""
    if isinstance(lane_id.merge, Reduce):
        yield f"reduce={lane_id.merge}"


# Spelling: options as a text that says the same, for those who hear of them later.


BESIDE = ("positions", "is_change")
"""Fields that are no options."""


def spelled(options: Options) -> str:
    """A text that parses to these options; names stand in the order of the contract's table.

    `normal.granted` spells what was decided; this spells what was asked for.
    """
    return ",".join(_parts(options))


def _parts(options: Options) -> Iterator[str]:
    for name in (each.name for each in fields(options)):
        if name in BESIDE or not options.says(name):
            continue
        value = getattr(options, name)
        if name in FLAGS:
            yield name
        elif name == "projection":  # with its grouping
            yield str(value)
        else:
            yield f"{name}={_SPELLERS.get(name, str)(value)}"


def _interval_text(value: int | str) -> str:
    return value if isinstance(value, str) else duration_text(value) if value else "none"


def _start_text(value: object) -> str:
    return time_text(value) if isinstance(value, int) else str(value)


_SPELLERS: Mapping[str, Callable[[Any], str]] = {
    "conflation": _interval_text,
    "min": duration_text,
    "max": duration_text,
    "max_age": duration_text,
    "rate_max_gap": duration_text,
    "never": "[{}]".format,
    "flush_on": "[{}]".format,
    "bookmark": _start_text,
    "rate": rate_text,
}
