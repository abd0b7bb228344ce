"""`tidegate pipeline journal` and `replay`: a topic kept as Parquet, and published again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from app.cli.arguments import Parser, add_gateway, add_topic


def add_journal(actions: argparse._SubParsersAction[Parser]) -> Parser:
    """Add `journal`; what runs it is the caller's to say."""
    parser = actions.add_parser("journal", help="archive a topic to Parquet", allow_abbrev=False)
    add_topic(parser)
    parser.add_argument("--to", required=True, metavar="DIR", help="folder of the archive")
    add_gateway(parser)
    parser.add_argument("--checkpoint", metavar="DIR", help="(in the archive)")
    parser.add_argument("--interval", metavar="10s", help="time between two files (10s)")
    parser.add_argument(
        "--available-now", action="store_true", help="end when all that is there is archived"
    )
    parser.add_argument("--compact", action="store_true", help="put small files together, and end")
    add_running(parser)
    return parser


def add_running(parser: Parser) -> None:
    """Add what every command takes whose streams go on: where Spark is, restarts, metrics."""
    parser.add_argument("--master", help="Spark master (local[*])")
    parser.add_argument(
        "--no-restart", action="store_true", help="end a stream at its first failure"
    )
    parser.add_argument("--metrics-port", metavar="N", help="answer Prometheus there (nowhere)")
    parser.add_argument("--metrics-host", metavar="HOST", help="(127.0.0.1)")


def add_replay(actions: argparse._SubParsersAction[Parser]) -> Parser:
    """Add `replay`; what runs it is the caller's to say."""
    parser = actions.add_parser(
        "replay", help="publish an archive or a history again", allow_abbrev=False
    )
    parser.add_argument("path", metavar="PATH", help="archive, NDJSON, .gz, Parquet, or a folder")
    parser.add_argument("--topic", required=True, metavar="TOPIC", help="where it is published")
    parser.add_argument("--source-topic", metavar="TOPIC", help="which of an archive's topics")
    add_gateway(parser)
    parser.add_argument(
        "--rate", metavar="10x", help="10x the recorded speed, 1000 or 500KB a second (at once)"
    )
    parser.add_argument("--max-gap", metavar="2s", help="the longest silence")
    parser.add_argument("--from", dest="from_time", metavar="TIME", help="what is not older")
    parser.add_argument("--until", metavar="TIME", help="what is older")
    parser.add_argument("--time-field", metavar="/ts", help="of messages that have no other time")
    parser.add_argument("--time-unit", metavar="UNIT", help="of numbers: auto, ms or s (auto)")
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="where it notes how far it is (checkpoints/replay-…)"
    )
    return parser


def journal_words(given: argparse.Namespace) -> list[str]:
    """The arguments of `python -m pipeline journal`."""
    words = named(given, ("to", "gateway", "checkpoint", "interval", *RUNNING))
    return [*words, *flagged(given, _FLAGS), "--", given.topic]


def replay_words(given: argparse.Namespace) -> list[str]:
    """The arguments of `python -m pipeline replay`."""
    return [*named(given, _OF_REPLAY), "--", given.path]


RUNNING = ("master", "metrics_port", "metrics_host")
"""Options of `add_running` that take a value."""

_FLAGS = ("available_now", "compact", "no_restart")
_OF_REPLAY = (
    "topic", "source_topic", "gateway", "rate", "max_gap", "from_time", "until", "time_field",
    "time_unit", "checkpoint",
)  # fmt: skip


def flagged(given: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """The flags that were given."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(given, name)]


def named(given: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """The options that were given with a value, each as one word."""
    found = {name: getattr(given, name) for name in names}
    return [
        f"--{name.removesuffix('_time').replace('_', '-')}={text}"
        for name, text in found.items()
        if text is not None
    ]
