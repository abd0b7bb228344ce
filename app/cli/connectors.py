"""`tidegate ingest` and `forward`: parsed here, run by `exec` in a process without Spark."""

from __future__ import annotations

import importlib
from typing import NoReturn

import click

from tidegate.app.cli.pipeline import exec_command, pipeline_command

# By name: the wall between app and pipeline forbids an import, and only the commands are needed.
_verbs = importlib.import_module("tidegate.pipeline.command")


class ConnectorCommand(click.Command):
    """A command that keeps its arguments, for the process that runs it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as given."""
        ctx.obj = [self.name, *args]
        return super().parse_args(ctx, args)


@click.pass_context
def _hand_over(ctx: click.Context, /, **_: object) -> NoReturn:
    exec_command(pipeline_command(*ctx.obj))


def _command(name: str) -> click.Command:
    verb: click.Command = getattr(_verbs, name)
    return ConnectorCommand(
        name, params=verb.params, callback=_hand_over, help=verb.help, epilog=verb.epilog
    )


ingest = _command("ingest")
forward = _command("forward")
