"""Searches seeds for a broken invariant, and says how to see it again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.simulation.checks import check
from tests.simulation.plan import make_plan
from tests.simulation.simulation import run

FOUND = 3


@dataclass(slots=True)
class Search:
    """What came of it: how many seeds and clients were seen, and the first that broke a rule."""

    seeds: int = 0
    clients: int = 0
    connections: int = 0
    broken: str = ""

    def __str__(self) -> str:
        seen = f"{self.seeds} seeds, {self.clients} clients, {self.connections} connections"
        return f"{seen}: {self.broken or 'nothing found'}"


def failed_assertion(error: BaseException) -> AssertionError | None:
    """Return the first failed assertion in an error, also of a group: tasks raise theirs in one."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(failed_assertion, error.exceptions)), None)
    return error if isinstance(error, AssertionError) else None


def search(seeds: Iterable[int], clients_min: int | None = None) -> Search:
    """Search until an invariant is broken, the seeds end, or that many clients were seen.

    An exception that is no broken invariant is raised, with a note that names the seed.
    """
    found = Search()
    for seed in seeds:
        if clients_min is not None and found.clients >= clients_min:
            break
        found.seeds += 1
        again = f"again: python -m tests.simulation {seed}"
        try:
            record = run(make_plan(seed))
            found.clients += len(record.clients)
            found.connections += sum(len(client.connections) for client in record.clients)
            check(record)
        except Exception as error:
            if (broken := failed_assertion(error)) is None:
                error.add_note(again)
                raise
            found.broken = f"{broken}\n{again}"
            break
    return found
