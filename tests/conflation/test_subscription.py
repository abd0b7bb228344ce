"""Commands, and what a subscription is made of."""

from __future__ import annotations

import pytest

from tidegate.conflation.lane_id import FeedId, LaneId
from tidegate.conflation.subscription import Command, Subscription
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
    def wish() -> Subscription:
        return Subscription("px", Command.SUBSCRIBE, LaneId(FeedId(KeySpec.parse("[/k]"))))

    assert wish() == wish()
    assert hash(wish().lane_id) == hash(wish().lane_id)
