"""How streams are run: the options that every command has whose streams go on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import click

DEFAULT_MASTER = "local[*]"
LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How streams are run.

    `master` is Spark's; with `available_now` they end when all that is there was read; `restarts`
    says whether one that failed is started again; metrics are told on `metrics_port` if there is
    one.
    """

    master: str = DEFAULT_MASTER
    available_now: bool = False
    restarts: bool = True
    metrics_port: int | None = None
    metrics_host: str = LOCALHOST

    @property
    def goes_on(self) -> bool:
        """Whether a stream that failed is started again; what ends by itself is not."""
        return self.restarts and not self.available_now


ONWARD = RunOptions()

master_option = click.option(
    "--master", default=DEFAULT_MASTER, show_default=True, help="Spark master."
)
MANNER_OPTIONS = (
    master_option,
    click.option("--available-now", is_flag=True, help="End when all that is there was read."),
    click.option("--no-restart", is_flag=True, help="End a stream at its first failure."),
    click.option(
        "--metrics-port", type=int, metavar="N", help="Answer Prometheus there (nowhere)."
    ),
    click.option("--metrics-host", default=LOCALHOST, show_default=True, metavar="HOST"),
)


def with_manner(function: Callable[..., int]) -> Callable[..., int]:
    """Add these options to a command, which takes what they say as `manner`."""

    @functools.wraps(function)
    def called(
        *,
        master: str,
        available_now: bool,
        no_restart: bool,
        metrics_port: int | None,
        metrics_host: str,
        **others: object,
    ) -> int:
        manner = RunOptions(master, available_now, not no_restart, metrics_port, metrics_host)
        return function(manner=manner, **others)

    command: Callable[..., int] = called
    for option in reversed(MANNER_OPTIONS):
        command = option(command)
    return command
