"""Who is told how streams stand: the terminal, gateways, a scraper where one is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pipeline.operations.condition import Condition
from pipeline.operations.lines import PROGRESS_EVERY_S
from pipeline.operations.manner import Manner
from pipeline.operations.metrics import Board, serving_metrics
from pipeline.operations.reporter import Reporter, reporting
from pipeline.operations.supervised import Say
from pipeline.operations.watch import Onlooker

BOARD_EVERY_S = 1.0


@contextmanager
def onlookers(
    manner: Manner, gateways: Iterable[str], line: Callable[[Condition], str], say: Say
) -> Iterator[list[Onlooker]]:
    """Those there are, each at hand while the block runs.

    Args:
        manner: whether metrics are told, and where.
        gateways: addresses of those that are told.
        line: what the terminal is told of one.
        say: tells the terminal.

    Raises:
        UsageInvalid: an address is none, or where metrics are to be told somebody else listens.
    """

    def speak(conditions: Sequence[Condition]) -> None:
        for condition in conditions:
            say(line(condition))

    found = [Onlooker(speak, PROGRESS_EVERY_S)]
    with ExitStack() as held:
        for gateway in sorted(gateways):
            reporter = Reporter(gateway, say)
            held.enter_context(reporting(reporter))
            found.append(Onlooker(reporter.tell, PROGRESS_EVERY_S))
        if manner.metrics_port is not None:
            board = Board()
            held.enter_context(serving_metrics(board, manner.metrics_port, manner.metrics_host))
            found.append(Onlooker(board.show, BOARD_EVERY_S))
        yield found
