"""`tidegate pipeline` and the benchmarks: parsed here, run by `exec` in their own process."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from tidegate import HOME
from tidegate.app.cli.installation import need
from tidegate.app.cli.terminal import CommandError


class PipelineVerbs(click.Group):
    """The verbs of `python -m tidegate.pipeline`, whose help and completion need no Spark.

    A valid command does not run here but replaces this process, so that signals and the exit code
    are those of its own process.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as given, for the process that runs them."""
        ctx.obj = list(args)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb; invoking it hands its words over."""
        verb = copy.copy(super().get_command(ctx, cmd_name))
        if verb is not None:
            verb.callback = partial(hand_over, ctx.obj)
        return verb


def hand_over(words: list[str], **_: object) -> NoReturn:
    """Replace this process by the pipeline's.

    Raises:
        ConfigurationInvalid: there is no Spark.
    """
    need("pipeline", "spark")
    if words[:1] == ["plan"] and any(word.startswith("--chart") for word in words):
        need("pipeline plan --chart", "plan")
    exec_command(pipeline_command(*words))


def exec_command(command: list[str]) -> NoReturn:
    """Replace this process by one that finds `tidegate`."""
    sys.stdout.flush()
    # Signals are blocked until the pipeline has its handlers: Python would print a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    os.execve(command[0], command, pipeline_environment())


def run_suite(words: Sequence[str]) -> NoReturn:
    """Replace this process by the benchmark suite of a checkout.

    Raises:
        CommandError: this is no checkout.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / "bench" / "__main__.py").is_file() or not (root / "dev.py").is_file():
        raise CommandError(
            "the benchmark suite is not part of an installed package: "
            "run python3 dev.py bench in a checkout"
        )
    exec_command([sys.executable, "-P", "-m", "bench", *words])


def pipeline_command(*words: str) -> list[str]:
    """Return the command of a pipeline; `-P` keeps the working folder out of Python's path."""
    return [sys.executable, "-P", "-m", "tidegate.pipeline", *words]


def pipeline_environment() -> dict[str, str]:
    """Return the environment of a pipeline process, in which Python finds `tidegate`."""
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(HOME), inherited]))}


# By name: the wall between app and pipeline forbids an import, and only the commands are needed.
_verbs: click.Group = importlib.import_module("tidegate.pipeline.command").pipeline
pipeline = PipelineVerbs(
    commands=_verbs.commands, help=_verbs.help, epilog=_verbs.epilog, no_args_is_help=False
)
