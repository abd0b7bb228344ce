"""How streams are run: the arguments that every command has whose streams go on."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

DEFAULT_MASTER = "local[*]"
LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Manner:
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

    @classmethod
    def of(cls, given: argparse.Namespace) -> Manner:
        """As the arguments of `add_manner` say."""
        return cls(
            master=given.master,
            available_now=given.available_now,
            restarts=not given.no_restart,
            metrics_port=given.metrics_port,
            metrics_host=given.metrics_host,
        )

    @property
    def goes_on(self) -> bool:
        """Whether a stream that failed is started again; what ends by itself is not."""
        return self.restarts and not self.available_now


ONWARD = Manner()


def add_manner(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to those of a command."""
    add_master(parser)
    parser.add_argument("--available-now", action="store_true", help="end when all is read")
    parser.add_argument("--no-restart", action="store_true", help="end at the first failure")
    parser.add_argument("--metrics-port", type=int, metavar="N", help="for Prometheus (none)")
    parser.add_argument("--metrics-host", default=LOCALHOST, help="(%(default)s)")


def add_master(parser: argparse.ArgumentParser) -> None:
    """Add where Spark runs."""
    parser.add_argument("--master", default=DEFAULT_MASTER, help="Spark master (%(default)s)")
