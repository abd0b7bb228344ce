"""The verbs of `python -m pipeline`: `run`, `journal`, `replay` and `plan`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pipeline.archive.command import VERBS, add_commands, done
from pipeline.errors import UsageInvalid
from pipeline.gateway import DEFAULT_GATEWAY
from pipeline.operations.manner import Manner, add_manner, add_master
from pipeline.operations.terminal import complain
from pipeline.streams.run import Topics, run

CHECKPOINTS = "checkpoints/topics"
GATEWAY = f"of the topics (the file's, else {DEFAULT_GATEWAY})"


def command(words: Sequence[str] | None = None) -> int:
    """Parse the arguments and run; the exit codes are the command line's."""
    parser = argparse.ArgumentParser(prog="python -m pipeline")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run the streams of a definition file")
    running.add_argument("file", type=Path, nargs="?", metavar="FILE.toml")
    running.add_argument("--topics", action="store_true", help="fill those of engine spark")
    running.add_argument("--gateway", metavar="URL", help=GATEWAY)
    running.add_argument("--checkpoints", type=Path, metavar="DIR", help=f"({CHECKPOINTS})")
    add_manner(running)
    planning = commands.add_parser("plan", help="what intervals would have cost and saved")
    planning.add_argument("path", type=Path, metavar="PATH")
    planning.add_argument("--key", action="append", required=True)
    planning.add_argument("--interval", action="append", required=True)
    planning.add_argument("--pace", action="append")
    planning.add_argument("--time-field")
    planning.add_argument("--time-unit", default="auto")
    planning.add_argument("--json", action="store_true")
    planning.add_argument("--chart", type=Path, action="append", default=[])
    add_master(planning)
    add_commands(commands)
    return _done(parser.parse_args(words))


def _done(given: argparse.Namespace) -> int:
    if given.command in VERBS:
        return done(given)
    if given.command == "run":
        return run(given.file, Manner.of(given), _topics(given))
    from pipeline.planner.plan import Wish, plan

    return plan(
        Wish(
            path=given.path,
            keys=given.key,
            intervals=given.interval,
            paces=given.pace or ["batch"],
            time_field=given.time_field,
            time_unit=given.time_unit,
            as_json=given.json,
            charts=given.chart,
            master=given.master,
        )
    )


def _topics(given: argparse.Namespace) -> Topics | None:
    """The topics to fill, if any are to be."""
    if given.topics:
        return Topics(given.gateway, given.checkpoints or Path(CHECKPOINTS))
    for option in ("gateway", "checkpoints"):
        if getattr(given, option) is not None:
            _end(f"--{option} goes with --topics; a file says its own")
    if given.file is None:
        _end("there is nothing to run: name a file, --topics, or both")
    return None


def _end(line: str) -> NoReturn:
    complain(line)
    sys.exit(UsageInvalid.exit_code)
