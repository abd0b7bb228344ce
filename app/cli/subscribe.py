"""`tidegate subscribe TOPIC`: a live table on a terminal, NDJSON into a pipe."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from app.cli.arguments import Parser, add_gateway, add_topic, count, seconds
from app.cli.connection import gateway_at
from app.cli.errors import DONE, GatewayAway, UsageInvalid
from app.cli.terminal import say

if TYPE_CHECKING:
    from clients.gateway import Gateway
    from clients.outage import Trouble
    from clients.subscription import Subscription

FORMATS = ("value", "envelope", "batch")
PRINTED = ("message", "delta", "oof")
COMMANDS = ("subscribe", "sow_and_subscribe", "sow", "delta_subscribe", "sow_and_delta_subscribe")


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "subscribe", help="follow a topic; comes back by itself", allow_abbrev=False
    )
    add_topic(parser)
    parser.add_argument("--options", default="", help="such as conflation=500ms")
    parser.add_argument("--filter", metavar="TEXT", help="which messages")
    parser.add_argument(
        "--order-by", metavar="FIELDS", help="of a snapshot or a window, such as '/price DESC'"
    )
    parser.add_argument("--command", choices=COMMANDS, help="(what fits the topic)")
    parser.add_argument("--format", choices=FORMATS, help="(what fits the options)")
    parser.add_argument("--count", type=count, metavar="N", help="end after so many messages")
    parser.add_argument(
        "--for", type=seconds, metavar="TIME", dest="seconds_max", help="end after, such as 10s"
    )
    parser.add_argument(
        "--table", action="store_true", help="a live table (what a terminal gets without --format)"
    )
    add_gateway(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Follow the topic until the count, the time, or the gateway says that it is over.

    Raises:
        UsageInvalid: `--table` together with `--format`.
        GatewayAway: the time was over during an outage.
    """
    if arguments.table and arguments.format is not None:
        raise UsageInvalid("--table and --format exclude one another")
    as_table = arguments.table or (sys.stdout.isatty() and arguments.format is None)
    with gateway_at(arguments) as gateway:
        if as_table:
            _show_table(gateway, arguments)
        else:
            with _subscribed(gateway, arguments, _format(arguments), say) as subscription:
                _print_messages(subscription, arguments.count)
    return DONE


def _format(arguments: argparse.Namespace) -> str | None:
    """Lines of values cannot tell a change from a whole record, so deltas come in envelopes."""
    has_deltas = "delta" in (arguments.command or "")
    return arguments.format or ("envelope" if has_deltas else None)


def _print_messages(subscription: Subscription, count_max: int | None) -> None:
    """Each message on a line of its own, at once: whoever reads may be waiting for it."""
    printed = 0
    for event in subscription:
        if event.name == "hello" and subscription.connections > 1:
            say("Connected again")
        elif event.name in ("error", "late", "unsubscribed"):
            say(f"{event.name}: {event.text}")
        elif event.name in PRINTED:
            sys.stdout.write(_one_line(event.text) + "\n")
            sys.stdout.flush()
            printed += 1
            if printed == count_max:
                return
    _require_connected(subscription)


def _one_line(text: str) -> str:
    """A batch of a session's comes on two lines; a text message may have as many as it likes."""
    return text.replace("\n", "", 1) if text.startswith('{"sub":') else text


def _show_table(gateway: Gateway, arguments: argparse.Namespace) -> None:
    from app.cli.table import LiveTable

    table = LiveTable(arguments.topic)
    with _subscribed(gateway, arguments, "batch", table.note) as subscription, table:
        for event in subscription:
            table.take(event)
            if arguments.count is not None and table.updates >= arguments.count:
                return
        _require_connected(subscription)


def _require_connected(subscription: Subscription) -> None:
    """Whoever asked for so long a time has to know that its end was not followed."""
    from clients.errors import GatewayUnreachable

    error = subscription.standing_error
    if isinstance(error, GatewayUnreachable):  # which was told when it began
        raise GatewayAway("the time was over before the gateway was back")
    if error is not None:
        raise error


def _subscribed(
    gateway: Gateway, arguments: argparse.Namespace, format_name: str | None, trouble: Trouble
) -> Subscription:
    return gateway.subscribe(
        arguments.topic,
        options=arguments.options,
        filter_text=arguments.filter,
        order_by=arguments.order_by,
        command=arguments.command,
        format_name=format_name,
        seconds_max=arguments.seconds_max,
        trouble=trouble,
    )
