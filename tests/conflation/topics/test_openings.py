"""The work of an opening and of a publish, counted in calls and comparisons, not in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.manual_driver import ManualDriver, batches
from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Frame
from tidegate.conflation.operators.filter import FilterOperator
from tidegate.conflation.topics import recorded
from tidegate.conflation.topics.feed import Feed
from tidegate.keys.order import Order

compared = 0


class Token:
    """Counts how often the order of two records is asked for."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Token) -> bool:
        global compared
        compared += 1
        return bool(self.value < other.value)


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many comparisons there were since the last question."""
    original = Order.sort_token
    monkeypatch.setattr(Order, "sort_token", lambda order, text: Token(original(order, text)))

    def since() -> int:
        global compared
        found, compared = compared, 0
        return found

    since()
    return since


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            counted[name] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, counting)

    count(Board, "put")
    count(FilterOperator, "moves")
    count(Feed, "grown_queues")
    count(recorded, "Recording")
    return counted


def say(driver: ManualDriver, *messages: tuple[int, int]) -> None:
    """Publish messages, each a key and a value."""
    head = driver.engine.topic("px").head
    frames = [
        Frame(offset, b'{"k":%d,"v":%d}' % message, f"[{message[0]}]", offset)
        for offset, message in enumerate(messages, head + 1)
    ]
    driver.engine.publish("px", frames, driver.now)


def taken(driver: ManualDriver, session: str) -> list[bytes]:
    """The payloads of all rows that a session is sent."""
    outputs = driver.take(session=session)
    return [row.payload for batch in batches(outputs) for row in batch.frames]


def filled(records: int) -> ManualDriver:
    """A topic with this many records, in no order."""
    driver = ManualDriver()
    driver.topic()
    say(driver, *((number, number * 7_919 % 10_007) for number in range(records)))
    return driver


@pytest.mark.parametrize("size", [10, 1_000])
def test_a_window_is_sorted_once_when_it_opens(
    comparisons: Callable[[], int], calls: Counter[str], size: int
) -> None:
    driver = filled(2_000)
    calls.clear()
    driver.subscribe(f"top_n={size}", order="/v DESC", command="sow_and_subscribe")
    assert comparisons() < 4 * 2_000 * 11  # n log n, for the window and for its snapshot
    assert calls["put"] == size
    # Each record is looked at once, for the snapshot and the lane together.
    assert calls["moves"] == 2_000


@pytest.mark.parametrize("size", [10, 1_000])
def test_a_message_moves_a_window_in_log_n(comparisons: Callable[[], int], size: int) -> None:
    driver = filled(2_000)
    driver.subscribe(f"top_n={size},skip_n=5", order="/v DESC", command="sow_and_subscribe")
    comparisons()
    say(driver, (7, 20_000))
    say(driver, (7, 1))
    say(driver, (9, 3))
    assert comparisons() < 5 * 50


def test_a_filter_is_made_once_for_snapshot_and_lane(calls: Counter[str]) -> None:
    driver = filled(500)
    calls.clear()
    driver.subscribe("conflation=1s", wanted="/v > 5000", command="sow_and_subscribe")
    assert calls["moves"] == 500


def test_a_query_leaves_no_board_behind() -> None:
    driver = filled(10)
    boards = driver.engine.topic_stats("px").boards
    driver.subscribe("", wanted="/v > 5000", command="sow")
    assert driver.engine.topic_stats("px").boards == boards


def test_a_publish_asks_only_the_queues_that_it_fills(calls: Counter[str]) -> None:
    driver = filled(1)
    for number in range(50):
        driver.subscribe("", wanted=f"/v = {number}", session=f"s{number}")
    calls.clear()
    say(driver, (1, 7))
    assert calls["grown_queues"] == 1


def test_equal_replays_are_made_once(calls: Counter[str]) -> None:
    driver = filled(20)
    for number in range(5):
        driver.subscribe("bookmark=epoch,conflation=1s", session=f"s{number}")
    assert calls["Recording"] == 1
    said = [taken(driver, f"s{number}") for number in range(5)]
    assert said == [said[0]] * 5
    say(driver, (1, 7))
    driver.subscribe("bookmark=epoch,conflation=1s", session="later")
    assert calls["Recording"] == 2
    assert taken(driver, "later") != said[0]
