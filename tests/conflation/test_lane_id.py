"""Which lanes a board alone can answer for."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.conflation.lane_id import FeedId, LaneId
from tidegate.keys.filter import Filter
from tidegate.keys.merging import Merger
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec

FEED = FeedId(KeySpec.parse("[/k]"))


@pytest.mark.parametrize("more", [{}, {"oof": True}, {"select": Select.parse("[-/a]", 0)}])
def test_a_plain_interval_asks_the_board(more: dict[str, Any]) -> None:
    assert LaneId(FEED, 1_000, **more).asks_board


@pytest.mark.parametrize(
    "more",
    [
        {"pace": "key"},
        {"leading": True},
        {"delta": True},
        {"counted": True},
        {"replaces": True},
        {"merge": Merger("m:f", max)},
        {"match": KeySpec.parse("[/a]")},
        {"never": Filter.parse("/a = 1")},
        {"flush_on": Filter.parse("/a = 1")},
    ],
)
def test_what_looks_at_every_message_does_not(more: dict[str, Any]) -> None:
    assert not LaneId(FEED, 1_000, **more).asks_board
