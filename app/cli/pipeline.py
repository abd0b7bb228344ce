"""`tidegate pipeline run FILE.toml`: the Spark side, in a process that is all its own."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from app.cli.arguments import Parser
from app.cli.later import add_refused

NOT_YET = {
    "journal": "archive a topic to Parquet",
    "replay": "publish an archive again",
    "plan": "what other intervals would cost and save",
}


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb and its own verbs."""
    parser = verbs.add_parser("pipeline", help="the Spark pipeline", allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", metavar="VERB", required=True)
    running = actions.add_parser(
        "run", help="run the streams of a definition file", allow_abbrev=False
    )
    running.add_argument("file", metavar="FILE.toml", help="the definition file")
    running.add_argument("--master", help="Spark master (local[*])")
    running.add_argument(
        "--available-now", action="store_true", help="end when all that is there was read"
    )
    running.set_defaults(run=run)
    for name, does in NOT_YET.items():
        add_refused(actions, name, f"{does} (not available yet)", f"pipeline {name}")


def run(arguments: argparse.Namespace) -> int:
    """Become the pipeline's process, so that signals and exit code are its own."""
    command = pipeline_command(arguments.file)
    if arguments.master is not None:
        command += ["--master", arguments.master]
    if arguments.available_now:
        command.append("--available-now")
    sys.stdout.flush()
    os.execve(command[0], command, pipeline_environment())


def pipeline_command(file: str) -> list[str]:
    """The command that runs a definition file; `-P` keeps the working folder out of the way."""
    return [sys.executable, "-P", "-m", "pipeline", "run", file]


def pipeline_environment() -> dict[str, str]:
    """The environment of a pipeline process: it finds the packages that stand beside `app`."""
    here = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [here, inherited]))}
