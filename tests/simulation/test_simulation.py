"""Simulations hold every invariant and are repeatable; the wall clock changes nothing in them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.simulation.plan import make_plan
from tests.simulation.search import search
from tests.simulation.simulation import Record, run
from tests.support.profiles import SEED

FIXED_SEEDS = range(10)
REPEATED_SEEDS = range(9_000_000, 9_000_002)
CLIENTS_OF_PART = 250
PARTS = 12
SEEDS_OF_PART = 1_000
"""More than a part needs."""
TIMES = re.compile(rb'"(gap_ms|timestamp|age_ms)":(-?\d+|null)')


@pytest.mark.parametrize("seed", FIXED_SEEDS)
def test_fixed_seeds_hold_every_invariant(seed: int) -> None:
    found = search([seed])
    assert not found.broken, found


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_fresh_seeds_hold_every_invariant(part: int) -> None:
    """A failure names its seed and the command that repeats it."""
    start = (SEED * PARTS + part) * SEEDS_OF_PART
    found = search(range(start, start + SEEDS_OF_PART), clients_min=CLIENTS_OF_PART)
    assert not found.broken, found
    assert found.clients >= CLIENTS_OF_PART


@pytest.mark.parametrize("seed", REPEATED_SEEDS)
def test_a_seed_gives_the_same_bytes_twice(seed: int) -> None:
    assert run(make_plan(seed)).digest == run(make_plan(seed)).digest


@pytest.mark.parametrize("seed", REPEATED_SEEDS)
def test_steps_of_the_wall_clock_change_nothing(seed: int) -> None:
    """I22."""
    plan = make_plan(seed)
    forth, back = (400_000_000, 3_600_000), (900_000_000, -7_200_000)
    stepped = replace(plan, wall_steps=(forth, back))
    # Steps of nothing: a call more at a moment would change the order of the others.
    steady = replace(plan, wall_steps=tuple((at_ns, 0) for at_ns, _ in (forth, back)))
    assert written(run(stepped)) == written(run(steady))


def written(record: Record) -> list[tuple[int, bytes]]:
    """What was sent, and when, without what tells of the wall clock."""
    return [
        (sent.asked_ns, TIMES.sub(b"", sent.text))
        for client in record.clients
        for connection in client.connections
        for sent in connection.socket.sents
    ]
