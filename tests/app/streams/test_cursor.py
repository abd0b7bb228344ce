"""The cursor: numbers, the marks that they identify, at most a thousand steps back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.app.streams.cursor import STEPS_MAX, Cursor, Mark, PackedCursor, parse_cursor
from tidegate.conflation.sessions.subscriber import SubscriberId
from tidegate.keys.text.bookmark import Bookmark

PX, FX = ("s1", "px"), ("s2", "fx")


def at(offset: int) -> Bookmark:
    return Bookmark("e", offset)


def test_a_number_stands_for_every_step_up_to_it() -> None:
    cursor = Cursor("abc")
    assert (cursor.text, cursor.marks(0)) == ("abc-0", {})
    assert cursor.move(PX, at(3)) == "abc-1~e-3"
    assert cursor.move(FX, at(9)) == "abc-2~e-9"
    assert cursor.move(PX, at(5)) == "abc-3~e-5"
    assert cursor.move(FX, None) == "abc-4"
    assert cursor.marks(1) == {PX: at(3)}
    assert cursor.marks(2) == {PX: at(3), FX: at(9)}
    assert cursor.marks(3) == {PX: at(5), FX: at(9)}


def test_a_number_that_was_never_given_is_not_known() -> None:
    cursor = Cursor("abc")
    cursor.move(PX, at(3))
    assert cursor.marks(2) is None


@rule("session-2")
def test_a_number_that_another_copy_of_the_session_has_given_is_not_known() -> None:
    cursor = Cursor("abc")
    cursor.move(PX, at(3))
    cursor.move(PX, at(5))
    other = Cursor.unpacked("abc", cursor.packed())
    cursor.move(PX, at(6))
    other.move(PX, at(9))
    assert cursor.marks(3, "e-6") == cursor.marks(3) == {PX: at(6)}
    assert cursor.marks(3, "e-9") is None
    assert other.marks(3, "e-6") is None
    assert other.marks(2, "e-5") == {PX: at(5)}


def test_the_last_thousand_steps_are_remembered() -> None:
    cursor = Cursor("abc")
    for offset in range(1, STEPS_MAX + 11):
        cursor.move(PX, at(offset))
    assert cursor.marks(9) is None
    assert cursor.marks(10) == {PX: at(10)}
    assert cursor.marks(STEPS_MAX + 10) == {PX: at(STEPS_MAX + 10)}


def test_what_begins_anew_is_of_no_use_to_whoever_left_before() -> None:
    cursor = Cursor("abc")
    cursor.move(PX, at(3))
    cursor.move(FX, at(4))
    cursor.drop_mark(PX)
    cursor.move(PX, at(7))
    assert cursor.marks(2) == {PX: None, FX: at(4)}
    assert cursor.marks(3) == {PX: None, FX: at(4)}
    assert cursor.marks(4) == {PX: at(7), FX: at(4)}


def test_a_subscriber_that_has_ended_has_no_mark() -> None:
    cursor = Cursor("abc")
    cursor.move(PX, at(3))
    assert cursor.end(PX) == "abc-2"
    assert cursor.next_id() == "abc-3"
    assert (cursor.marks(1), cursor.marks(3)) == ({PX: at(3)}, {})


def test_a_reader_that_is_back_with_less_has_new_numbers() -> None:
    cursor = Cursor("abc")
    cursor.move(PX, at(3))
    cursor.move(PX, at(8))
    cursor.rewind({PX: at(3), FX: None})
    assert cursor.number == 4
    assert cursor.marks(4) == {PX: at(3), FX: None}
    assert cursor.marks(2) == {PX: at(8)}
    cursor.rewind({PX: at(3), FX: None})
    assert cursor.number == 4, "nothing is new"


def test_what_is_folded_leaves_nothing_of_the_ended_behind() -> None:
    cursor = Cursor("abc")
    for number in range(STEPS_MAX):
        subscriber = (f"s{number}", "px")
        cursor.drop_mark(subscriber)
        cursor.end(subscriber)
    for offset in range(STEPS_MAX):
        cursor.move(FX, at(offset))
    assert cursor.marks(cursor.number) == {FX: at(STEPS_MAX - 1)}
    assert (len(cursor._base), len(cursor._anew), len(cursor._steps)) == (0, 0, STEPS_MAX)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["move", "end", "note", "anew"]),
        st.sampled_from([PX, FX]),
        st.one_of(st.none(), st.integers(0, 99).map(at)),
    ),
    max_size=40,
)


@given(steps=STEPS, later=STEPS, fold=st.sampled_from([0, STEPS_MAX - 5, STEPS_MAX + 5]))
@examples(12)
def test_a_cursor_that_was_packed_is_the_same(
    steps: list[tuple[str, SubscriberId, Mark]],
    later: list[tuple[str, SubscriberId, Mark]],
    fold: int,
) -> None:
    cursor = Cursor("g.abc")
    cursor.confirmed = 3
    taken(cursor, steps)
    for _ in range(fold):
        cursor.next_id()
    sent = msgspec.msgpack.encode(cursor.packed())
    there = Cursor.unpacked("g.abc", msgspec.msgpack.decode(sent, type=PackedCursor))
    for each in (cursor, there):
        taken(each, later)
    assert (there.text, there.confirmed) == (cursor.text, 3)
    numbers = [*range(0, cursor.number + 2, max(1, fold // 8)), cursor.number]
    assert [there.marks(number) for number in numbers] == [cursor.marks(n) for n in numbers]


def taken(cursor: Cursor, steps: list[tuple[str, SubscriberId, Mark]]) -> None:
    for act, subscriber, mark in steps:
        if act == "move":
            cursor.move(subscriber, mark)
        elif act == "end":
            cursor.end(subscriber)
        elif act == "note":
            cursor.next_id()
        else:
            cursor.drop_mark(subscriber)


MOVES = st.lists(
    st.tuples(st.sampled_from([PX, FX]), st.one_of(st.none(), st.integers(0, 99).map(at))),
    max_size=40,
)


@given(moves=MOVES, fold=st.integers(0, STEPS_MAX))
@examples(12)
def test_folding_changes_no_answer(moves: list[tuple[SubscriberId, Mark]], fold: int) -> None:
    cursor, naive = Cursor("abc"), list[dict[SubscriberId, Mark]]([{}])
    for subscriber, mark in moves:
        cursor.move(subscriber, mark)
        naive.append({**naive[-1], subscriber: mark})
    for _ in range(fold):
        cursor.next_id()
        naive.append(naive[-1])
    oldest = max(0, cursor.number - STEPS_MAX)
    for number in {oldest, (oldest + cursor.number) // 2, cursor.number}:
        assert cursor.marks(number) == naive[number]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("abc-7", ("abc", 7, "")),
        ("abc-7~e1-5", ("abc", 7, "e1-5")),
        ("abc-7~e1", None),
        ("a-b_c--0", ("a-b_c-", 0, "")),
        ("abc", None),
        ("abc-07", None),
        ("abc-" + "9" * 19, None),
        ("g1.a-b-1", ("g1.a-b", 1, "")),
        ("a.b.c-1", None),
        ("", None),
    ],
)
def test_an_id_is_a_session_a_number_and_a_place(
    text: str, parsed: tuple[str, int, str] | None
) -> None:
    found = parse_cursor(text)
    assert (found if found is None else tuple(found)) == parsed
