"""Sources, command and gateway are killed at random instants: nothing is lost, nothing doubled."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.ingest.feeds import FEEDS
from tests.pipeline.ingest.kills import Arrivals, outlast, play
from tests.support.profiles import SEED
from tests.support.rules import rule

pytestmark = pytest.mark.system
RATE = 2_000
OUTAGE_S = 20.0
GROWTH_MAX = 8 * 1024 * 1024
"""Of memory during an outage: 40,000 messages would take more than thirty megabytes."""
CATCH_UP_MAX = 32 * 1024 * 1024
"""Of memory after it, when batches are full."""


def check(folder: Path, kind: str, messages: int, kills: int) -> None:
    feed = FEEDS[kind](folder)
    found = play(folder, feed, messages, kills, SEED)
    assert found.lost == 0, f"seed {SEED}: {found}"
    if feed.counts_once:
        assert (found.doubled, found.out_of_order) == (0, 0), f"seed {SEED}: {found}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that servers of other users may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="tidegate-kills-") as name:
        yield Path(name)


@rule("ingest-1")
@pytest.mark.parametrize("kind", ["redis"])
@pytest.mark.nightly
def test_each_part_is_killed_once(folder: Path, kind: str) -> None:
    check(folder, kind, messages=2_000, kills=3)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", FEEDS)
def test_each_part_is_killed_often(folder: Path, kind: str) -> None:
    check(folder, kind, messages=20_000, kills=12)


@rule("ingest-5")
@pytest.mark.nightly
@pytest.mark.parametrize("kind", FEEDS)
def test_memory_does_not_grow_while_the_gateway_is_away(folder: Path, kind: str) -> None:
    feed = FEEDS[kind](folder)
    found = outlast(folder, feed, RATE, OUTAGE_S)
    outcome = found.outcome
    assert (outcome.lost, outcome.doubled, outcome.out_of_order) == (0, 0, 0), found
    assert found.memory_away - found.memory_before < GROWTH_MAX, found
    assert outcome.memory - found.memory_before < CATCH_UP_MAX, found


def test_what_is_behind_a_later_message_of_its_key_is_out_of_order() -> None:
    arrivals = Arrivals("http://127.0.0.1:9")
    arrivals.numbers = [0, 1, 50, 50, 100, 150, 100, 0, 51, 250, 200]
    assert arrivals.out_of_order() == 1
