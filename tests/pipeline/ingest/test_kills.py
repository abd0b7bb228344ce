"""Sources, command and gateway are killed at random instants: nothing is lost, nothing doubled."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.ingest.feeds import FEEDS
from tests.pipeline.ingest.kills import Arrivals, play
from tests.support.profiles import SEED
from tests.support.rules import rule

pytestmark = pytest.mark.system


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


def test_what_is_behind_a_later_message_of_its_key_is_out_of_order() -> None:
    arrivals = Arrivals("http://127.0.0.1:9")
    arrivals.numbers = [0, 1, 50, 50, 100, 150, 100, 0, 51, 250, 200]
    assert arrivals.out_of_order() == 1
