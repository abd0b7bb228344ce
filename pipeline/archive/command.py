"""The arguments of `python -m pipeline journal` and `replay`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pipeline.gateway import DEFAULT_GATEWAY
from pipeline.operations.manner import Manner, add_manner

VERBS = ("journal", "replay")


def add_commands(commands: Any) -> None:
    """Add both to the verbs of `python -m pipeline` (an argparse subparsers action)."""
    _add_journal(commands.add_parser("journal", help="archive a topic to Parquet"))
    _add_replay(commands.add_parser("replay", help="publish an archive or a history again"))


def done(given: argparse.Namespace) -> int:
    """Carry one of them out; the exit codes are the command line's."""
    if given.command == "journal":
        from pipeline.archive import journal

        return journal.journal(
            journal.Wish(
                topic=given.topic,
                archive=given.to,
                gateway=given.gateway,
                checkpoint=given.checkpoint,
                interval=given.interval,
                compact=given.compact,
                manner=Manner.of(given),
            )
        )
    from pipeline.archive import replay

    return replay.replay(
        replay.Wish(
            path=given.path,
            topic=given.topic,
            source_topic=given.source_topic,
            gateway=given.gateway,
            rate=given.rate,
            max_gap=given.max_gap,
            from_time=given.from_time,
            until_time=given.until,
            time_field=given.time_field,
            time_unit=given.time_unit,
            checkpoint=given.checkpoint,
        )
    )


def _add_journal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR")
    parser.add_argument("--gateway", default=DEFAULT_GATEWAY, metavar="URL")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR")
    parser.add_argument("--interval", default="10s")
    parser.add_argument("--compact", action="store_true")
    add_manner(parser)


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="PATH")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--source-topic")
    parser.add_argument("--gateway", default=DEFAULT_GATEWAY, metavar="URL")
    parser.add_argument("--rate")
    parser.add_argument("--max-gap")
    parser.add_argument("--from", dest="from_time")
    parser.add_argument("--until")
    parser.add_argument("--time-field")
    parser.add_argument("--time-unit", default="auto")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR")
