"""The commands that read a topic: `subscribe`, `sow`, `messages`, and `explain`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from tidegate.app.cli.arguments import (
    COUNT,
    connect,
    filter_option,
    for_option,
    gateway_option,
    order_by_option,
    topic_argument,
)
from tidegate.app.cli.terminal import (
    DONE,
    ServerAway,
    UsageInvalid,
    pointing,
    print_line,
    print_note,
    writing_output,
)

if TYPE_CHECKING:
    from tidegate.clients.retry import Trouble
    from tidegate.clients.subscription import Subscription

    Subscribe = Callable[[str | None, Trouble], Subscription]

FORMATS = ("value", "envelope", "batch")
# Notes about the stream go to standard error: a pipe gets messages and nothing else.
PRINTED = ("message", "delta", "oof")
ENDS_FOR_GOOD = ("CLOSED_BY_ADMIN", "REPLACED")  # no `unsubscribed` precedes these goodbyes
COMMANDS = ("subscribe", "sow_and_subscribe", "sow", "delta_subscribe", "sow_and_delta_subscribe")
LABEL_WIDTH = 10


@click.command(
    epilog=(
        "\b\nExamples:\n"
        "  tidegate subscribe prices --options conflation=1s\n"
        "  tidegate subscribe prices --filter '/price > 100' --order-by '/price DESC'\n"
        "  tidegate subscribe prices --count 10 | jq .price"
    )
)
@topic_argument
@click.option("--options", default="", help="Options, such as conflation=500ms.")
@filter_option
@order_by_option
@click.option(
    "--command",
    type=click.Choice(COMMANDS),
    help="How to subscribe (default: what fits the topic).",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    help="How each message is printed (default: what fits the options).",
)
@click.option("--count", type=COUNT, metavar="N", help="Stop after N messages.")
@for_option
@click.option(
    "--table", is_flag=True, help="Show a live table (the default on a terminal without --format)."
)
@click.option(
    "--sort",
    metavar="FIELDS",
    help="Order of the table's rows, such as '/price DESC' (default: --order-by, else by key).",
)
@gateway_option
def subscribe(
    topic: str,
    options: str,
    filter_text: str | None,
    order_by: str | None,
    command: str | None,
    format_name: str | None,
    count: int | None,
    seconds_max: float | None,
    table: bool,
    sort: str | None,
    gateway: str,
) -> int:
    """Follow a topic, and reconnect when needed.

    In the live table the keys left and right choose the column of the order, r reverses it, up and
    down scroll, and q quits.

    Ends after --count messages, after --for, or when the gateway ends the subscription.
    """
    if table and format_name is not None:
        raise UsageInvalid("use either --table or --format, not both")

    # A function, as the table and the lines differ in the format and in where notes are shown.
    def open_subscription(format_name: str | None, trouble: Trouble) -> Subscription:
        return client.subscribe(
            topic,
            options=options,
            filter=filter_text,
            order_by=order_by,
            command=command,
            format=format_name,
            for_s=seconds_max,
            trouble=trouble,
        )

    with (
        connect(gateway) as client,
        pointing(options=options, filter=filter_text, order_by=order_by),
    ):
        # With --format the messages themselves are printed, also on a terminal.
        if table or (sys.stdout.isatty() and format_name is None):
            _show_table(topic, open_subscription, count, sort or order_by or "")
        else:
            printed_format = format_name or _plain_format(command)
            with open_subscription(printed_format, print_note) as subscription:
                _print_messages(subscription, count)
    return DONE


@click.command(
    epilog=(
        "\b\nExamples:\n"
        "  tidegate sow prices\n"
        "  tidegate sow prices --filter '/price > 100' --order-by '/price DESC'"
    )
)
@topic_argument
@filter_option
@order_by_option
@click.option("--top-n", metavar="N", type=COUNT, help="Print at most N records.")
@click.option("--skip-n", metavar="N", type=COUNT, help="Skip the first N records.")
@click.option(
    "--select", metavar="FIELDS", help="Fields to print, such as '[-/,+/symbol,+/price]'."
)
@click.option(
    "--as-of",
    metavar="TIME",
    help="Records as of a past time: 2026-11-21T21:37:10Z, or milliseconds since 1970.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["value", "envelope"]),
    help="How each record is printed (default: value).",
)
@gateway_option
def sow(
    topic: str,
    filter_text: str | None,
    order_by: str | None,
    select: str | None,
    format_name: str | None,
    gateway: str,
    **page: Any,
) -> int:
    """Print the newest record of every key.

    The output is NDJSON: the topic's state of the world.
    """
    with (
        connect(gateway) as client,
        pointing(filter=filter_text, order_by=order_by, select=select),
    ):
        records = client.sow(
            topic,
            filter=filter_text,
            order_by=order_by,
            select=select,
            format=format_name,
            **page,
        )
        for record in records:
            # The bytes as received: decoding would respell numbers, or fail in some locales.
            with writing_output():
                sys.stdout.buffer.write(record + b"\n")
    return DONE


@click.command(
    epilog=(
        "\b\nExamples:\n"
        "  tidegate messages prices --last 5\n"
        "  tidegate messages prices --from 2026-11-21T21:37:10Z | jq .value"
    )
)
@topic_argument
@click.option(
    "--from",
    "from_",
    metavar="PLACE",
    help="After a bookmark, or since a time: 2026-11-21T21:37:10Z (default: the oldest kept).",
)
@click.option("--limit", metavar="N", type=COUNT, help="Print at most N messages.")
@click.option(
    "--last", metavar="N", type=COUNT, help="Print the newest N, without --from and --limit."
)
@gateway_option
def messages(
    topic: str, from_: str | None, limit: int | None, last: int | None, gateway: str
) -> int:
    """Print the messages that the journal keeps, oldest first, up to the present.

    The output is NDJSON: an envelope for each message or removal, with its time and its bookmark.
    """
    with connect(gateway) as client:
        for envelope in client.messages(topic, from_, limit, last=last):
            with writing_output():
                sys.stdout.buffer.write(envelope + b"\n")
    return DONE


@click.command(
    epilog=(
        "\b\nExample:\n  tidegate explain prices --options conflation=1s --filter '/price > 100'"
    )
)
@topic_argument
@click.option("--options", help="Options, such as conflation=500ms.")
@filter_option
@order_by_option
@click.option("--command", help="Such as delta_subscribe (default: what fits the topic).")
@click.option("--json", "as_json", is_flag=True, help="Print the gateway's answer as JSON.")
@gateway_option
def explain(
    topic: str,
    options: str | None,
    filter_text: str | None,
    order_by: str | None,
    command: str | None,
    as_json: bool,
    gateway: str,
) -> int:
    """Explain what subscribing would do, without doing it."""
    with (
        connect(gateway) as client,
        pointing(options=options, filter=filter_text, order_by=order_by),
    ):
        found = client.explain(
            topic, options=options, filter=filter_text, order_by=order_by, command=command
        )
    if as_json:
        print_line(json.dumps(found, ensure_ascii=False, indent=2))
        return DONE
    for label, text in _explained(found):
        print_line(f"{label:<{LABEL_WIDTH}} {text}")
    return DONE


def _plain_format(command: str | None) -> str | None:
    """Return `envelope` for deltas: a bare value does not show that it is a change."""
    return "envelope" if "delta" in (command or "") else None


def _print_messages(subscription: Subscription, count_max: int | None) -> None:
    """Print each message on its own line, flushed at once for the reader of a pipe."""
    printed = 0
    for event in subscription:
        # A reader of the output has to know that rows may repeat from here.
        if event.name == "hello" and subscription.connections > 1:
            place = subscription.gateway_id and f" to gateway {subscription.gateway_id}"
            print_note(f"Reconnected{place}")
        elif event.name in ("late", "unsubscribed"):
            print_note(f"{event.name}: {event.text}")
        elif event.name == "goodbye" and (reason := event.fields.get("reason")) in ENDS_FOR_GOOD:
            print_note(f"The gateway has ended the stream: {reason}")
        elif event.name in PRINTED:
            print_line(_one_line(event.text))
            printed += 1
            if printed == count_max:
                return
    _require_connected(subscription)


def _one_line(text: str) -> str:
    """Join the two lines of a session's batch; a text message keeps its own lines."""
    # The gateway sends a session's head line and the lane's shared body as two lines of one event.
    return text.replace("\n", "", 1) if text.startswith('{"sub":') else text


def _show_table(
    topic: str, open_subscription: Subscribe, count_max: int | None, order_by: str
) -> None:
    from tidegate.app.cli.live.keyboard import keys
    from tidegate.app.cli.live.table import LiveTable

    _check_order(order_by)
    table = LiveTable(topic, order_by=order_by)

    def press(pressed: str) -> None:
        if pressed == "q":
            subscription.close()
        else:
            table.press(pressed)

    # One redraw a flush: the rows of a batch arrive together.
    with open_subscription("batch", table.note) as subscription, keys(press), table:
        for event in subscription:
            table.take(event)
            if count_max is not None and table.updates >= count_max:
                return
        _require_connected(subscription)


def _check_order(text: str) -> None:
    from tidegate.keys.errors import PathInvalid
    from tidegate.keys.order import Order

    try:
        if text.strip():
            Order.parse(text)
    except PathInvalid as error:
        raise UsageInvalid(
            f"{text!r} is not an order: {error.detail}, at {error.position}"
        ) from None


def _require_connected(subscription: Subscription) -> None:
    """Raise if the time ended during an outage: the caller saw nothing of its end."""
    from tidegate.clients.errors import GatewayUnreachable

    error = subscription.standing_error
    if isinstance(error, GatewayUnreachable):  # the outage itself was printed when it began
        raise ServerAway("the time given with --for ended while the gateway was unreachable")
    if error is not None:
        raise error


def _explained(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("command", "options", "filter", "order_by"):
        if found[name] is not None:
            yield name, found[name]
    named = [
        name if value is True else f"{name}={value}" for name, value in found["defaults"].items()
    ]
    yield "by default", ",".join(named) or "nothing"
    # A sow has no lane and nothing to resume.
    if found["lane"] is not None:
        yield "lane", f"{found['lane']} (now {found['subscribers']:,} on it)"
        yield "resume", found["resume"]
    yield "estimate", _estimate(found)
    for warning in found["warnings"]:
        yield "warning", warning


def _estimate(found: dict[str, Any]) -> str:
    estimates = found["estimates"]
    if estimates is None:
        return f"none: {found['reason']}"
    return (
        f"{_rounded(estimates['messages_per_s'])} messages and "
        f"{_rounded(estimates['bytes_per_s'])} bytes a second, "
        f"if the last {estimates['journalled']:,} messages were published again"
    )


def _rounded(rate: float) -> str:
    """Return a rate as a whole number, below 10 with two digits: an estimate is no more exact."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
