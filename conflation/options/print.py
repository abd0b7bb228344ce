"""The printed forms of the table: what was asked for, what was granted, lanes, the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate.conflation.lane_id import LaneId, Window
from tidegate.conflation.options.rules import Rule
from tidegate.conflation.options.table import TABLE, Option, Options
from tidegate.conflation.subscription import Command, Shown, Subscription


def spelled(options: Options) -> str:
    """Return a text that parses to these options, in the order of the table.

    `granted` prints what was decided; this prints what was asked for.
    """
    return ",".join(
        option.text(options.said[name]) for name, option in TABLE.items() if options.says(name)
    )


def granted(subscription: Subscription) -> str:
    """Return the normalised form: what was granted, as options that ask for exactly this.

    What matters is spelled out though it be a default, since a setting or the topic may change it.
    With the same command, filter and order, parsing and deciding it again gives an equal
    subscription.
    """
    return ",".join(_granted(subscription))


def _granted(subscription: Subscription) -> Iterator[str]:
    for option in TABLE.values():
        value = option.granted(subscription)
        if value is not None and value != option.default:
            yield option.text(value)


def lane_text(lane_id: LaneId) -> str:
    """Return what tells a lane from the others of its topic: options, then the rest after `&`.

    A lane with counted rows shows `receipt`, whichever of its members show it.
    """
    # A subscription of this lane whose own settings are all defaults, so that only the lane shows.
    shown = Shown(receipt=lane_id.counted)
    anyone = Subscription("", Command.SUBSCRIBE, lane_id, shown=shown)
    feed = lane_id.feed
    beside = {
        "command": "delta_subscribe" if lane_id.delta else None,
        "filter": feed.filter,
        "order_by": feed.shape.order if isinstance(feed.shape, Window) else None,
    }
    texts = (f"&{name}={value}" for name, value in beside.items() if value is not None)
    return granted(anyone) + "".join(texts)


def reference() -> str:
    """Return the tables of the reference page, in Markdown: every option, and every rule."""
    return "\n".join((*_option_rows(), "", *_rule_rows()))


def _option_rows() -> Iterator[str]:
    yield "| option | value | default | meaning | as in |"
    yield "|---|---|---|---|---|"
    for name, option in TABLE.items():
        value = "flag" if option.syntax is None else option.syntax.form
        yield f"| `{name}` | {value} | {_usual(option)} | {option.meaning} | {option.source} |"


def _usual(option: Option[Any]) -> str:
    if option.usual:
        return option.usual
    if option.syntax is None:
        return "off"
    return "none" if option.default is None else f"`{option.syntax.text(option.default)}`"


def _rule_rows() -> Iterator[str]:
    """Yield a row for each sentence: two rules that differ only in exceptions share theirs."""
    names_of: dict[str, list[str]] = {}
    for rule in Rule:
        kept_by = (name for name, option in TABLE.items() if rule in option.rules)
        names_of.setdefault(rule.sentence, []).extend(kept_by)
    yield "| option | refused with |"
    yield "|---|---|"
    for sentence, names in names_of.items():
        shown = ", ".join(f"`{name}`" for name in names)
        yield f"| {shown} | {sentence.format(name='…' if len(names) > 1 else names[0])} |"
