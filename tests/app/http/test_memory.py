"""When freed memory is given back to the system."""

import gc
import itertools
from collections.abc import Sequence

import pytest

from tidegate.app.http.server import CROWD_MIN, FreedMemory, collect_and_give_back


def given_back_at(counts: Sequence[int]) -> list[int]:
    """The looks, counted from 0, at which memory is given back."""
    given_back: list[int] = []
    looks = itertools.count()
    memory = FreedMemory(lambda: given_back.append(next(looks)))
    for connections in counts:
        before = len(given_back)
        memory.look(connections)
        if len(given_back) == before:
            next(looks)
    return given_back


@pytest.mark.parametrize(
    ("counts", "at"),
    [
        pytest.param([0, 1_000, 1_000, 1_000], [], id="nobody-leaves"),
        pytest.param([1_000, 600, 200, 9, 9, 9], [4], id="once-all-who-leave-have-left"),
        pytest.param([1_000, 600, 700, 590, 590], [2, 4], id="once-for-each-crowd"),
        pytest.param([CROWD_MIN, 1, 1], [], id="not-for-a-few"),
        pytest.param([CROWD_MIN, 0, 0], [2], id="for-enough"),
    ],
)
def test_it_is_given_back_when_a_crowd_has_left(counts: Sequence[int], at: list[int]) -> None:
    assert given_back_at(counts) == at


def test_asking_does_no_harm() -> None:
    collect_and_give_back()


def test_what_is_there_at_start_is_not_looked_through_until_a_crowd_has_left() -> None:
    gc.freeze()
    assert gc.get_freeze_count() > 0
    collect_and_give_back()
    assert gc.get_freeze_count() == 0
