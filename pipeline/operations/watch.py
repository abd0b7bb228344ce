"""The loop of the main thread: streams are looked at until all are over or the end is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.operations.run_options import RunOptions
from tidegate.pipeline.operations.status import PROGRESS_EVERY_S, StreamStatus
from tidegate.pipeline.operations.supervisor import Say, Supervisor

WATCH_EVERY_S = 0.1


class Asked(Protocol):
    """Somebody may ask for the end."""

    @property
    def asked(self) -> bool:
        """Whether it was."""

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or at once when it is asked for."""


@dataclass
class StatusSink:
    """Somebody who is told how all streams stand, so often."""

    look: Callable[[Sequence[StreamStatus]], None]
    every_s: float
    due_s: float = 0.0


def watch(
    watched: Sequence[Supervisor],
    onlookers: Sequence[StatusSink],
    stop: Asked,
    say: Say,
    monotonic: Callable[[], float] = time.monotonic,
    *,
    renew: Callable[[], None] | None = None,
) -> None:
    """Look at streams and tell onlookers, until all are over or the end is asked for.

    A stream that fails for good is told at once where others go on. `renew` may bring streams in
    and take them out; more may always come then.
    """
    for onlooker in onlookers:
        onlooker.due_s = monotonic() + onlooker.every_s
    told: list[PipelineError] = []
    while not stop.asked:
        if renew is not None:
            renew()
        for each in watched:
            each.look()
        if renew is None and all(each.is_over for each in watched):
            return
        for each in watched:
            if each.failure is not None and each.failure not in told:
                told.append(each.failure)
                say(f"{each.failure}; the other streams go on")
        now_s = monotonic()
        due = [each for each in onlookers if now_s >= each.due_s]
        tell(watched, due)
        for onlooker in due:  # what was missed meanwhile is not made up for
            onlooker.due_s += onlooker.every_s * (1 + (now_s - onlooker.due_s) // onlooker.every_s)
        stop.wait(WATCH_EVERY_S)


def tell(watched: Sequence[Supervisor], onlookers: Sequence[StatusSink]) -> None:
    """Tell these onlookers how streams stand now."""
    if not onlookers:
        return
    conditions = [each.condition() for each in watched]
    for onlooker in onlookers:
        onlooker.look(conditions)


# Who is told how streams stand: the terminal, gateways, a scraper where one is wanted.


BOARD_EVERY_S = 1.0


@contextmanager
def onlookers(
    manner: RunOptions, gateways: Iterable[str], line: Callable[[StreamStatus], str], say: Say
) -> Iterator[list[StatusSink]]:
    """Those there are, each at hand while the block runs.

    Args:
        manner: whether metrics are told, and where.
        gateways: addresses of those that are told.
        line: what the terminal is told of one.
        say: tells the terminal.

    Raises:
        UsageInvalid: an address is none, or where metrics are to be told somebody else listens.
    """

    def speak(conditions: Sequence[StreamStatus]) -> None:
        for condition in conditions:
            say(line(condition))

    found = [StatusSink(speak, PROGRESS_EVERY_S)]
    with ExitStack() as held:
        for gateway in sorted(gateways):
            # Loads an HTTP client, which help and complaints of the command line do without.
            from tidegate.pipeline.operations.reporter import Reporter, reporting

            reporter = Reporter(gateway, say)
            held.enter_context(reporting(reporter))
            found.append(StatusSink(reporter.tell, PROGRESS_EVERY_S))
        if manner.metrics_port is not None:
            # Loads a Prometheus client, which the base installation lacks.
            from tidegate.pipeline.operations.metrics import StatusBoard, serving_metrics

            board = StatusBoard()
            held.enter_context(serving_metrics(board, manner.metrics_port, manner.metrics_host))
            found.append(StatusSink(board.show, BOARD_EVERY_S))
        yield found
