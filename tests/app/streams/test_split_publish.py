"""Large publishes are split into pieces that any queue can hold."""

from __future__ import annotations

import pytest

from tests.support.manual_driver import ManualDriver
from tests.support.models.lockstep import PLENTY
from tidegate.app.streams.backpressure import SLICE_MESSAGES_MAX, split_publish
from tidegate.conflation.frame import Frame
from tidegate.conflation.sessions.session import QueueLimits


def frames(*sizes: int) -> list[Frame]:
    return [Frame(at, b"x" * size) for at, size in enumerate(sizes, 1)]


def test_slices_hold_a_thousand_messages_or_half_a_queue() -> None:
    lengths = [
        len(piece) for piece in split_publish(frames(*[1] * 2_500), QueueLimits(10_000, PLENTY))
    ]
    assert lengths == [SLICE_MESSAGES_MAX, SLICE_MESSAGES_MAX, 500]
    assert [len(piece) for piece in split_publish(frames(*[1] * 7), QueueLimits(6, PLENTY))] == [
        3,
        3,
        1,
    ]
    assert [len(piece) for piece in split_publish(frames(1, 1), QueueLimits(1, PLENTY))] == [1, 1]


def test_slices_hold_half_of_a_queues_bytes() -> None:
    pieces = list(split_publish(frames(30, 20, 1, 80, 10), QueueLimits(1_000, 100)))
    assert [[len(frame.payload) for frame in piece] for piece in pieces] == [
        [30, 20],
        [1],
        [80],
        [10],
    ]


def test_slices_lose_nothing() -> None:
    whole = frames(*range(1, 200))
    pieces = split_publish(whole, QueueLimits(16, 500))
    assert [frame for piece in pieces for frame in piece] == whole
    assert list(split_publish([], QueueLimits(16, 500))) == []


def test_slices_are_smaller_where_many_boards_look_at_each_message() -> None:
    limits = QueueLimits(10_000, PLENTY)
    whole = frames(*[1] * 1_000)
    assert [len(piece) for piece in split_publish(whole, limits, 3)] == [1_000]
    assert max(len(piece) for piece in split_publish(whole, limits, 256)) == 11
    assert [len(piece) for piece in split_publish(frames(1, 1), limits, 10**6)] == [1, 1]


def test_a_topic_counts_the_boards_that_look_at_each_message() -> None:
    driver = ManualDriver()
    driver.topic()
    topic = driver.engine.topic("px")
    assert topic.message_cost == 1
    for wanted in ("/s LIKE 'a'", "/s LIKE 'b'", "/k = 'a'"):  # the last one is found by its value
        driver.subscribe("conflation=1s", wanted=wanted)
    assert topic.message_cost == 3


@pytest.mark.parametrize(
    "options",
    [
        "conflation=1s,receipt",
        "conflation=1s,reduce=[/v:sum]",
        "select=[-/,+/k]",
        "projection=[/g,SUM(/v) AS /v],grouping=[/g],conflation=1s",
    ],
)
def test_a_message_that_is_put_together_with_others_costs_many_looks(options: str) -> None:
    driver = ManualDriver()
    driver.topic()
    topic = driver.engine.topic("px")
    name = driver.subscribe(options, command="sow_and_subscribe")
    assert topic.message_cost > 10
    driver.engine.unsubscribe("s", name)
    assert topic.message_cost == 1
