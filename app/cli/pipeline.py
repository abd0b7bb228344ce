"""`tidegate pipeline`: its verbs are read here and carried out in a process of their own."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import os
import signal
import sys
from functools import partial
from typing import NoReturn

import click

from tidegate import HOME
from tidegate.app.cli.extras import need


class PipelineVerbs(click.Group):
    """The verbs of `python -m tidegate.pipeline`, whose help and completion need no Spark.

    A verb whose words are in order is not run here but handed over, so that signals and the exit
    code are those of its own process.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words as they were given."""
        ctx.obj = list(args)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, which hands the words over."""
        verb = copy.copy(super().get_command(ctx, cmd_name))
        if verb is not None:
            verb.callback = partial(hand_over, ctx.obj)
        return verb


def hand_over(words: list[str], **_: object) -> NoReturn:
    """Become the pipeline's process.

    Raises:
        ConfigurationInvalid: there is no Spark.
    """
    need("pipeline", "spark")
    if words[:1] == ["plan"] and any(word.startswith("--chart") for word in words):
        need("pipeline plan --chart", "plan")
    become(pipeline_command(*words))


def become(command: list[str]) -> NoReturn:
    """Replace this process by one that finds `tidegate`."""
    sys.stdout.flush()
    # A signal that comes before the pipeline listens waits for it: Python would print a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    os.execve(command[0], command, pipeline_environment())


def pipeline_command(*words: str) -> list[str]:
    """The command of a pipeline; `-P` keeps the working folder out of the way."""
    return [sys.executable, "-P", "-m", "tidegate.pipeline", *words]


def pipeline_environment() -> dict[str, str]:
    """The environment of a pipeline process: Python finds `tidegate` there."""
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(HOME), inherited]))}


# By name: the gateway's packages and the pipeline's know nothing of each other.
_verbs: click.Group = importlib.import_module("tidegate.pipeline.command").pipeline
pipeline = PipelineVerbs(commands=_verbs.commands, help=_verbs.help, no_args_is_help=False)
