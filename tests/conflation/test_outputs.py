"""Outputs are values, and a reason says whether to come back."""

from __future__ import annotations

import dataclasses

import pytest

from tidegate.conflation.outputs import CloseReason, Goodbye, Unsubscribed


@pytest.mark.parametrize(
    ("reason", "reconnect"),
    [
        (CloseReason.QUEUE_LIMIT, True),
        (CloseReason.SHUTDOWN, True),
        (CloseReason.WRITE_TIMEOUT, True),
        (CloseReason.CLOSED_BY_ADMIN, False),
        (CloseReason.UNSUBSCRIBED, False),
    ],
)
def test_a_goodbye_says_if_the_client_should_reconnect(
    reason: CloseReason, reconnect: bool
) -> None:
    assert reason.reconnect is reconnect


def test_outputs_are_compared_by_value_and_cannot_change() -> None:
    goodbye = Goodbye(CloseReason.SHUTDOWN)
    assert goodbye == Goodbye(CloseReason.SHUTDOWN)
    assert Unsubscribed("a", "px", "REMOVED") != Unsubscribed("b", "px", "REMOVED")
    with pytest.raises(dataclasses.FrozenInstanceError):
        goodbye.reason = CloseReason.UNSUBSCRIBED  # type: ignore[misc]  # frozen, as is shown
