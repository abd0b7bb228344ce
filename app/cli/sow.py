"""`tidegate sow TOPIC`: the newest record of every key, once."""

from __future__ import annotations

import argparse
import sys

from app.cli.arguments import Parser, add_gateway, add_topic, count
from app.cli.connection import gateway_at
from app.cli.errors import DONE


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "sow", help="the state of the world: the newest record of every key", allow_abbrev=False
    )
    add_topic(parser)
    parser.add_argument("--filter", metavar="TEXT", help="which records")
    parser.add_argument("--order-by", metavar="FIELDS", help="such as '/price DESC'")
    parser.add_argument("--top-n", metavar="N", type=count, help="at most so many")
    parser.add_argument("--skip-n", metavar="N", type=count, help="behind the first so many")
    parser.add_argument("--select", metavar="FIELDS", help="such as '[-/,+/symbol,+/price]'")
    parser.add_argument(
        "--as-of", metavar="TIME", help="as they were then: 2026-11-21T21:37:10Z, or milliseconds"
    )
    parser.add_argument("--format", choices=("value", "envelope"), help="(value)")
    add_gateway(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the records as NDJSON."""
    with gateway_at(arguments) as gateway:
        records = gateway.sow(
            arguments.topic,
            filter=arguments.filter,
            order_by=arguments.order_by,
            top_n=arguments.top_n,
            skip_n=arguments.skip_n,
            select=arguments.select,
            format=arguments.format,
            as_of=arguments.as_of,
        )
        for record in records:
            sys.stdout.buffer.write(record + b"\n")
    return DONE
