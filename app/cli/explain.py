"""`tidegate explain TOPIC`: what subscribing would do, without doing it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from app.cli.arguments import Parser, add_gateway, add_topic
from app.cli.connection import gateway_at
from app.cli.errors import DONE
from app.cli.terminal import tell

LABEL_WIDTH = 10


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "explain", help="what subscribing would do, without doing it", allow_abbrev=False
    )
    add_topic(parser)
    parser.add_argument("--options", help="such as conflation=500ms")
    parser.add_argument("--filter", metavar="TEXT", help="which messages")
    parser.add_argument("--order-by", metavar="FIELDS", help="such as '/price DESC'")
    parser.add_argument("--command", help="such as delta_subscribe (what fits the topic)")
    parser.add_argument("--json", action="store_true", help="the gateway's answer as it is")
    add_gateway(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """A few lines to read, or JSON."""
    with gateway_at(arguments) as gateway:
        told = gateway.explain(
            arguments.topic,
            options=arguments.options,
            filter=arguments.filter,
            order_by=arguments.order_by,
            command=arguments.command,
        )
    if arguments.json:
        tell(json.dumps(told, ensure_ascii=False, indent=2))
        return DONE
    for label, text in _lines(told):
        tell(f"{label:<{LABEL_WIDTH}} {text}")
    return DONE


def _lines(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("command", "options", "filter", "order_by"):
        if told[name] is not None:
            yield name, told[name]
    named = [
        name if value is True else f"{name}={value}" for name, value in told["defaults"].items()
    ]
    yield "by default", ",".join(named) or "nothing"
    if told["lane"] is not None:
        yield "lane", f"{told['lane']} (now {told['subscribers']:,} on it)"
        yield "resume", told["resume"]
    yield "estimate", _estimate(told)
    for warning in told["warnings"]:
        yield "warning", warning


def _estimate(told: dict[str, Any]) -> str:
    found = told["estimates"]
    if found is None:
        return f"none: {told['reason']}"
    return (
        f"{found['messages_per_s']:,} messages and {found['bytes_per_s']:,} bytes a second, "
        f"had the last {found['journalled']:,} messages come again"
    )
