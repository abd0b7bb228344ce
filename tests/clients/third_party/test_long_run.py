"""The long run of clients of Durable Streams, in a short form; the command plays half an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.third_party.long_run import FAILS_AT_RESET, FOLLOWERS, LongRun

pytestmark = pytest.mark.nightly

MINUTES, SPEED, AWAY_S = 4, 10, 8


def test_clients_end_with_the_records_through_all_that_happens(tmp_path: Path) -> None:
    run = LongRun(MINUTES, SPEED, AWAY_S, tmp_path)
    run.run()
    assert run.figures.removals > 0
    assert set(run.figures.equal_after_s) == set(FOLLOWERS)
    resets = {name: each.resets for name, each in run.followers.items()}
    assert all(resets[name] == 1 for name in FOLLOWERS if name != FAILS_AT_RESET), resets
