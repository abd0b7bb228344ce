"""Commands, equal subscriptions, and the lanes that a board alone can answer for."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.conflation.subscription import Command, FeedId, LaneId, Subscription
from tidegate.keys.filter import Filter
from tidegate.keys.merging import Merger
from tidegate.keys.select import Select
from tidegate.keys.spec import KeySpec


@pytest.mark.parametrize(
    ("command", "queries", "is_delta"),
    [
        ("subscribe", False, False),
        ("sow", True, False),
        ("sow_and_subscribe", True, False),
        ("delta_subscribe", False, True),
        ("sow_and_delta_subscribe", True, True),
    ],
)
def test_a_command_says_what_it_begins_with_and_what_is_enough(
    command: str, queries: bool, is_delta: bool
) -> None:
    assert (Command(command).queries, Command(command).is_delta) == (queries, is_delta)


def test_equal_subscriptions_are_equal_so_that_they_share() -> None:
    def wanted() -> Subscription:
        return Subscription("px", Command.SUBSCRIBE, LaneId(FeedId(KeySpec.parse("[/k]"))))

    assert wanted() == wanted()
    assert hash(wanted().lane_id) == hash(wanted().lane_id)


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
