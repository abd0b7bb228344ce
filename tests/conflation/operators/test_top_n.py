"""Live windows: the first so many by an order."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.manual_driver import ManualDriver, batches
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Frame, Tombstone
from tidegate.conflation.operators.filter import FilterOperator, Move
from tidegate.conflation.operators.top_n import TopNOperator
from tidegate.conflation.subscription import FeedId, Window
from tidegate.keys.filter import Filter
from tidegate.keys.order import Order
from tidegate.keys.spec import KeySpec


def window(options: str, order: str = "/v DESC") -> ManualDriver:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b5 c3 d4")
    driver.subscribe(options, order=order, command="sow_and_subscribe")
    return driver


@rule("view-1")
def test_a_snapshot_is_the_window_in_its_order() -> None:
    assert window("top_n=2,oof").received() == [
        "group of 2",
        "snapshot: b5 d4",
        "group ends at e1-4",
    ]
    assert window("top_n=2,skip_n=1").received()[1] == "snapshot: d4 c3"


@rule("view-1")
def test_who_comes_in_pushes_somebody_out() -> None:
    driver = window("top_n=2,oof")
    driver.take()
    driver.publish("a9")
    driver.flush()
    assert driver.received() == ["-d4 a9"]
    driver.publish("b0")
    driver.flush()
    assert driver.received() == ["-b0 d4"]
    driver.remove("a0")
    driver.flush()
    assert driver.received() == ["-a9 c3"]


def test_below_the_window_nothing_is_told() -> None:
    driver = window("top_n=2,oof")
    driver.take()
    driver.publish("a2 c1")
    driver.flush()
    assert driver.received() == []
    assert driver.engine.session_stats("s").subscriptions[0].matched == 0


@rule("removal-2", "view-1")
def test_an_interval_tells_how_the_window_is_at_its_end() -> None:
    """B was out and is back."""
    driver = window("top_n=2,oof,conflation=1s")
    driver.take()
    driver.publish("a9 c8 a0")
    driver.wait("1s")
    assert driver.received() == ["-d4 c8 b5"]


@rule("view-1")
def test_without_an_order_records_stand_by_their_key() -> None:
    assert window("top_n=2", order="").received()[1] == "snapshot: a1 b5"


@rule("resume-6")
def test_rows_moved_by_one_message_are_never_taken_apart() -> None:
    """A piece of an answer is a position, and so is a message."""
    driver = window("top_n=2,oof")
    driver.take(bytes_max=1)
    driver.publish("a9")
    driver.flush()
    (batch,) = batches(driver.take_once(1))
    assert len(batch.frames) == 2


# --- The operator alone, beside a list that is sorted anew for each question

SPEC = KeySpec.of(["/k"])


def operator(window: Window) -> tuple[Board, TopNOperator]:
    """A window and its board."""
    board = Board()
    records = FilterOperator(FeedId(SPEC, Filter.parse("/v > 0")), SPEC, "px", board)
    return board, TopNOperator(records, window)


def apply(board: Board, moves: Iterable[Move]) -> None:
    """Do to a board what a feed does."""
    for board_key, frame in moves:
        if isinstance(frame, Tombstone):
            assert board.remove(board_key, frame) is not None, "only what is there leaves"
        else:
            board.put(board_key, frame)


def record(offset: int, key: str, value: int) -> Frame:
    return Frame(offset, b'{"k":"%s","v":%d}' % (key.encode(), value), key, offset)


MESSAGES = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-1, 4)), max_size=24)
SHAPES = st.builds(
    Window,
    st.sampled_from([None, Order.parse("/v"), Order.parse("/v DESC")]),
    st.integers(1, 4),
    st.integers(0, 4),
)


@examples(30)
@given(SHAPES, MESSAGES, MESSAGES)
def test_a_window_is_what_a_sorted_list_shows(
    window: Window, before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    board, shown = operator(window)
    records: dict[str, Frame] = {}
    for offset, (key, value) in enumerate(before, 1):
        records.pop(key, None)
        records[key] = record(offset, key, value)
    apply(board, [*shown.seed(records.values()), *shown.seeded()])
    for offset, (key, value) in enumerate(after, len(before) + 1):
        # -1 takes the record away, 0 keeps it where the filter does not match it.
        frame = record(offset, key, value) if value >= 0 else Tombstone(offset, b"", key, offset)
        if value >= 0:
            records[key] = frame
        elif records.pop(key, None) is None:
            continue
        apply(board, shown.moves(frame))
        assert {row.key: row.payload for row in board.live()} == naive(window, records)


@examples(30)
@given(SHAPES, MESSAGES)
def test_seeded_it_has_the_rows_that_messages_would_have_left(
    window: Window, messages: list[tuple[str, int]]
) -> None:
    newest = {key: record(at, key, value) for at, (key, value) in enumerate(messages, 1)}
    records = sorted(newest.values(), key=lambda frame: frame.offset)
    (one, seeded), (other, grown) = operator(window), operator(window)
    apply(one, [*seeded.seed(records[:3]), *seeded.seed(records[3:]), *seeded.seeded()])
    for frame in records:
        apply(other, grown.moves(frame))
    # Rows, their order, and the offsets of the messages that brought them in.
    assert one.live() == other.live()


def naive(window: Window, records: dict[str, Frame]) -> dict[str, bytes]:
    """The window of these records, by sorting them all."""

    def place(frame: Frame) -> tuple[int, str]:
        sign = 0 if window.order is None else -1 if window.order.columns[0].descending else 1
        return sign * value_of(frame), frame.key

    found = sorted((frame for frame in records.values() if value_of(frame) > 0), key=place)
    kept = found[window.skip_n : window.skip_n + window.top_n]
    return {frame.key: frame.payload for frame in kept}


def value_of(frame: Frame) -> int:
    return int(msgspec.json.decode(frame.payload)["v"])
