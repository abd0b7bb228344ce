"""A simulation is the same every time; the wall clock decides nothing in it."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest

from dev import ROOT
from tests.simulation.plan import make_plan
from tests.simulation.simulation import Record, run
from tests.support.deadlines import computed

SEEDS = range(9_000_000, 9_000_006)
TIMES = re.compile(rb'"(gap_ms|timestamp|age_ms)":(-?\d+|null)')
DIGEST = """
import logging, sys
from tests.simulation.plan import make_plan
from tests.simulation.simulation import run
logging.disable(logging.CRITICAL)
sys.stdout.write(" ".join(run(make_plan(int(seed))).digest for seed in sys.argv[1:]))
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_gives_the_same_bytes_twice(seed: int) -> None:
    assert run(make_plan(seed)).digest == run(make_plan(seed)).digest


def test_another_process_gives_the_same_bytes() -> None:
    """Also where texts have other hashes, and sets another order."""
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT)}
    run_apart = computed(["-c", DIGEST, *map(str, SEEDS)], environment=environment)
    digests = [run(make_plan(seed)).digest for seed in SEEDS]
    assert run_apart.stdout.split() == digests, run_apart.stderr


@pytest.mark.parametrize("seed", SEEDS)
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
