"""`tidegate pipeline run`, `journal`, `replay` and `plan`: a process that is all its own."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from app.cli.archive import (
    RUNNING,
    add_journal,
    add_replay,
    add_running,
    flagged,
    journal_words,
    named,
    replay_words,
)
from app.cli.arguments import DEFAULT_GATEWAY, Parser


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb and its own verbs."""
    parser = verbs.add_parser("pipeline", help="the Spark pipeline", allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", metavar="VERB", required=True)
    running = actions.add_parser(
        "run", help="run the streams of a definition file, or fill topics", allow_abbrev=False
    )
    running.add_argument("file", nargs="?", metavar="FILE.toml", help="the definition file")
    running.add_argument(
        "--topics", action="store_true", help="fill each topic whose source says engine: spark"
    )
    running.add_argument(
        "--gateway",
        metavar="URL",
        help=f"whose topics are filled (the file's, else {DEFAULT_GATEWAY})",
    )
    running.add_argument(
        "--checkpoints", metavar="DIR", help="what topics were filled with (checkpoints/topics)"
    )
    running.add_argument(
        "--available-now", action="store_true", help="end when all that is there was read"
    )
    add_running(running)
    running.set_defaults(run=run)
    _add_plan(actions)
    add_journal(actions).set_defaults(run=journal)
    add_replay(actions).set_defaults(run=replay)


def _add_plan(actions: argparse._SubParsersAction[Parser]) -> None:
    planning = actions.add_parser(
        "plan", help="what other intervals would cost and save", allow_abbrev=False
    )
    planning.add_argument("path", metavar="PATH", help="NDJSON, .gz, Parquet, or a folder of them")
    planning.add_argument(
        "--key", action="append", required=True, metavar="/A,/B", help="may be repeated"
    )
    planning.add_argument(
        "--interval", action="append", required=True, metavar="100ms,1s,5s", help="one or more"
    )
    planning.add_argument("--pace", action="append", metavar="key,batch", help="(batch)")
    planning.add_argument("--time-field", metavar="/ts", help="milliseconds, seconds or ISO 8601")
    planning.add_argument("--time-unit", metavar="UNIT", help="of numbers: auto, ms or s (auto)")
    planning.add_argument("--json", action="store_true", help="the answer as JSON")
    planning.add_argument(
        "--chart", action="append", metavar="FILE", help="draw it as .svg or .png; may be repeated"
    )
    planning.add_argument("--master", help="Spark master (local[*])")
    planning.set_defaults(run=plan)


def plan(arguments: argparse.Namespace) -> int:
    """Become the planner's process."""
    command = [*_pipeline("plan"), "--json"] if arguments.json else _pipeline("plan")
    for option in ("key", "interval", "pace", "time_field", "time_unit", "chart", "master"):
        given = getattr(arguments, option)
        for text in given if isinstance(given, list) else [given]:
            if text is not None:
                command.append(f"--{option.replace('_', '-')}={text}")
    _become([*command, "--", arguments.path])


def run(arguments: argparse.Namespace) -> int:
    """Become the pipeline's process, so that signals and exit code are its own."""
    flags = flagged(arguments, ("topics", "available_now", "no_restart"))
    options = named(arguments, ("gateway", "checkpoints", *RUNNING))
    command = [*_pipeline("run"), *flags, *options]
    _become(command if arguments.file is None else [*command, "--", arguments.file])


def journal(arguments: argparse.Namespace) -> int:
    """Become the archiver's process."""
    _become([*_pipeline("journal"), *journal_words(arguments)])


def replay(arguments: argparse.Namespace) -> int:
    """Become the process that publishes again."""
    _become([*_pipeline("replay"), *replay_words(arguments)])


def _become(command: list[str]) -> NoReturn:
    sys.stdout.flush()
    # A signal that comes before the pipeline listens waits for it: Python would print a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    os.execve(command[0], command, pipeline_environment())


def pipeline_command(file: str) -> list[str]:
    """The command that runs a definition file; `-P` keeps the working folder out of the way."""
    return [*_pipeline("run"), file]


def _pipeline(verb: str) -> list[str]:
    return [sys.executable, "-P", "-m", "pipeline", verb]


def pipeline_environment() -> dict[str, str]:
    """The environment of a pipeline process: it finds the packages that stand beside `app`."""
    here = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [here, inherited]))}
