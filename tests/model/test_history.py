"""Every order of appends, reads, restarts and takeovers keeps what gateways promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.history import FIRST, Bounds, History, Protocol
from tests.model.search import Violation, search
from tests.support.rules import rule

pytestmark = rule("cluster-4", "cluster-14", "cluster-15", "cluster-16")


def test_a_position_is_one_history_whatever_fails() -> None:
    assert search(FIRST, History(Protocol(), Bounds(entries=2, faults=1)).steps) == 53_463


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("bounds", "states"),
    [(Bounds(entries=3, faults=1), 317_941), (Bounds(entries=2, faults=2), 1_654_629)],
)
def test_a_position_is_one_history_whatever_fails_more(bounds: Bounds, states: int) -> None:
    assert search(FIRST, History(Protocol(), bounds).steps) == states


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ("epochs_of_lives", "is two histories|which is not at its place|seen another history"),
        ("writes_of_lives", "which its server never wrote"),
        ("decides_at_head", "finds nothing to delete"),
        ("refuses_when_behind", "takes the reader back"),
    ],
)
def test_each_check_is_needed(left_out: str, said: str) -> None:
    protocol = replace(Protocol(), **{left_out: False})
    with pytest.raises(Violation, match=said):
        search(FIRST, History(protocol, Bounds(entries=3, faults=1)).steps)


def test_an_epoch_is_followed_only_in_its_life() -> None:
    with pytest.raises(Violation, match="of another life"):
        search(FIRST, History(Protocol(follows_in_life=False), Bounds(0, faults=2)).steps)
