"""A thousand simulated sessions keep every invariant; a hundred thousand in the nightly profile.

A seed that fails is named with the command that shows it again.
"""

from __future__ import annotations

import pytest

from tests.simulation.search import search
from tests.support.profiles import NIGHTLY

CLIENTS_A_PART = 250
PARTS = 400 if NIGHTLY else 4
SEEDS_A_PART = 1_000
"""More than a part will need."""


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_every_invariant_holds(part: int) -> None:
    start = part * SEEDS_A_PART
    found = search(range(start, start + SEEDS_A_PART), clients_min=CLIENTS_A_PART)
    assert not found.broken, found
    assert found.clients >= CLIENTS_A_PART
