"""The log against a plain list."""

from __future__ import annotations

import copy
import sys

from hypothesis import given
from hypothesis import strategies as st

from tests.support.manual_driver import make_frames, tokens
from tests.support.profiles import examples
from tidegate.conflation.definition import History
from tidegate.conflation.frame import Frame
from tidegate.conflation.journal import Log


def log_of(text: str, first: int = 1) -> Log:
    log = Log()
    log.extend(make_frames(text, first))
    return log


def test_after_answers_from_a_position_up_to_another() -> None:
    log = log_of("a1 b1 c1 d1")
    assert tokens(log.after(0)) == "a1 b1 c1 d1"
    assert tokens(log.after(2)) == "c1 d1"
    assert tokens(log.after(1, until=3)) == "b1 c1"
    assert tokens(log.after(4)) == ""


def test_what_is_added_is_counted() -> None:
    log = Log()
    first, *others = make_frames("a1 b1 c1")
    assert log.extend([first]) == len(first.payload)
    assert log.extend(iter(others)) == sum(len(frame.payload) for frame in others)
    assert log.payload_bytes == len(first.payload) * 3


def test_a_backlog_is_counted_in_messages_and_bytes() -> None:
    log = log_of("a1 b1 c1")
    each = len(log.after(0)[0].payload)
    assert [log.backlog(offset) for offset in range(4)] == [
        (3, 3 * each),
        (2, 2 * each),
        (1, each),
        (0, 0),
    ]


def test_a_copy_counts_bytes_as_its_original_does() -> None:
    log = Log(lambda frame: 1)
    log.extend(make_frames("a1 b1 c1"))
    log.drop_through(1)
    twin = copy.deepcopy(log)
    twin.extend(make_frames("d1", first=4))
    assert (twin.payload_bytes, twin.dropped_through) == (3, 1)
    assert (log.payload_bytes, tokens(twin.after(0))) == (2, "b1 c1 d1")


def test_what_was_dropped_is_remembered_by_its_last_offset() -> None:
    log = log_of("a1 b1 c1", first=5)
    assert log.dropped_through == 0
    log.drop_through(6)
    assert (log.dropped_through, len(log)) == (6, 1)
    log.drop_through(2)
    assert (log.dropped_through, len(log)) == (6, 1)


def test_an_empty_log_has_no_ends() -> None:
    log = Log()
    assert (log.first, log.last, len(log), log.payload_bytes) == (None, None, 0, 0)
    log.drop_through(9)
    log.keep(History(1, bytes_max=1, age_ms=1))
    assert log.dropped_through == 0


def test_a_history_of_no_messages_keeps_none() -> None:
    log = log_of("a1 b1")
    log.keep(History(0))
    assert (len(log), log.dropped_through, log.first) == (0, 2, None)


def test_age_is_counted_back_from_the_newest_message() -> None:
    log = Log()
    log.extend(Frame(offset, b"x", timestamp_ms=at) for offset, at in ((1, 0), (2, 40), (3, 100)))
    log.keep(History(10, age_ms=60))
    assert [frame.offset for frame in log.after(0)] == [2, 3]
    log.keep(History(10, age_ms=59))
    assert [frame.offset for frame in log.after(0)] == [3]


OPERATIONS = st.one_of(
    st.tuples(st.just("extend"), st.lists(st.integers(0, 40), max_size=200)),
    st.tuples(st.just("drop"), st.integers(0, 3_000)),
    st.tuples(st.just("count"), st.integers(0, 300)),
    st.tuples(st.just("bytes"), st.integers(0, 5_000)),
)


@examples(10)
@given(st.lists(OPERATIONS, max_size=40), st.booleans())
def test_a_log_is_a_list_that_is_cut_at_its_old_end(
    operations: list[tuple[str, list[int] | int]], large: bool
) -> None:
    """Large ones are compacted on the way."""
    log, plain, offset = Log(), [], 0
    if large:
        operations = [("extend", [1] * 5_000), *operations, ("drop", 4_500), ("drop", 5_100)]
    for name, argument in operations:
        if isinstance(argument, list):
            frames = [Frame(offset + 1 + at, b"x" * size) for at, size in enumerate(argument)]
            offset += len(frames)
            log.extend(frames)
            plain += frames
        elif name == "drop":
            log.drop_through(argument)
            plain = [frame for frame in plain if frame.offset > argument]
        elif name == "count":
            log.keep(History(argument))
            plain = plain[len(plain) - argument :] if argument < len(plain) else plain
        else:
            log.keep(History(100_000, bytes_max=argument))
            while sum(len(frame.payload) for frame in plain) > argument:
                plain = plain[1:]
        middle = offset // 2
        assert log.after(0) == plain
        assert log.after(middle, until=middle + 7) == [
            frame for frame in plain if middle < frame.offset <= middle + 7
        ]
        assert log.payload_bytes == sum(len(frame.payload) for frame in plain)
        behind = [frame for frame in plain if frame.offset > middle]
        assert log.backlog(middle) == (len(behind), sum(len(frame.payload) for frame in behind))


def test_what_is_dropped_is_freed_at_once() -> None:
    """And not all of it with the message at which the lists are compacted."""
    log, payload = Log(), bytes(1_000)
    own = sys.getrefcount(payload)
    log.extend(Frame(offset, payload) for offset in range(1, 101))
    log.drop_through(60)
    assert sys.getrefcount(payload) - own == 40


def test_bytes_are_counted_on_through_compactions() -> None:
    log, kept = Log(), History(5_000, bytes_max=30_000)
    for offset in range(1, 40_001):
        log.extend([Frame(offset, bytes(1 + offset % 10))])
        log.keep(kept)
        if offset % 997 == 0:
            frames = log.after(0)
            assert log.payload_bytes == sum(len(frame.payload) for frame in frames)
            assert len(frames) == min(offset, 5_000)
            assert log.backlog(offset - 3) == (3, sum(len(it.payload) for it in frames[-3:]))
    tight = History(5_000, bytes_max=100)
    log.keep(tight)
    assert 80 < log.payload_bytes <= 100
    log.keep(tight)
    assert 80 < log.payload_bytes <= 100
