"""The oracle finds each way in which a store can break its word, and nothing in a right one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.checks.ledger import Answer, Ident, Ledger, Level, Request
from tests.faults.checks.oracle import Entry, Kind, judge_journal, judge_records, judge_world

pytestmark = pytest.mark.nightly

Journal = list[Entry]


def asked(
    sequence: int, *names: str, at_s: float, answer: Answer | None = None, writer: str = "w"
) -> Request:
    return Request(writer, sequence, Level.PERSISTED, names, False, at_s, answer)


def removal(sequence: int, name: str, at_s: float, answer: Answer | None = None) -> Request:
    return Request("w", sequence, Level.PERSISTED, (name,), True, at_s, answer)


def story() -> tuple[Ledger, Journal]:
    """Two acknowledged requests, a removal, and one of which nobody knows whether it came."""
    ledger = Ledger(
        [
            asked(1, "a", "b", at_s=1.0, answer=Answer(1.5, "e-1", "e-2")),
            removal(2, "a", 2.0, Answer(2.5, deleted=1)),
            asked(3, "a", "c", at_s=3.0, answer=Answer(3.5, "e-4", "e-5")),
            asked(4, "b", "c", at_s=4.0),
        ]
    )
    return ledger, [
        Entry(1, "a", Ident("w", 1, 0)),
        Entry(2, "b", Ident("w", 1, 1)),
        Entry(3, "a", None),
        Entry(4, "a", Ident("w", 3, 0)),
        Entry(5, "c", Ident("w", 3, 1)),
    ]


def renumbered(journal: Journal) -> Journal:
    return [Entry(at, entry.key, entry.ident) for at, entry in enumerate(journal, start=1)]


def late(journal: Journal) -> Journal:
    """With the unanswered request, whole."""
    more = [Entry(6, "b", Ident("w", 4, 0)), Entry(7, "c", Ident("w", 4, 1))]
    return [*journal, *more]


@pytest.mark.parametrize("end", [lambda journal: journal, late])
def test_a_right_journal_has_nothing_wrong(end: Callable[[Journal], Journal]) -> None:
    ledger, journal = story()
    assert judge_journal(ledger, "e", end(journal)) == []


BREAKS: dict[str, tuple[Callable[[Journal], Journal], Kind]] = {
    "an acknowledged request": (lambda j: renumbered(j[:3]), Kind.LOST),
    "the end of an acknowledged request": (lambda j: j[:4], Kind.LOST),
    "an acknowledged removal": (lambda j: renumbered(j[:2] + j[3:]), Kind.LOST),
    "a request twice": (lambda j: renumbered(j + j[:2]), Kind.DOUBLED),
    "a removal twice": (lambda j: renumbered(j[:3] + j[2:]), Kind.DOUBLED),
    "half of the unanswered": (lambda j: late(j)[:6], Kind.TORN),
    "a request in two pieces": (
        lambda j: [*j[:4], Entry(5, "b", Ident("w", 4, 0)), *renumbered(j)[4:]],
        Kind.TORN,
    ),
    "the later first": (lambda j: renumbered(j[3:] + j[:3]), Kind.REORDERED),
    "another place than was said": (lambda j: renumbered(j[:2] + j[3:]), Kind.MOVED),
    "a message of nobody": (lambda j: [*j, Entry(6, "b", Ident("x", 1, 0))], Kind.INVENTED),
    "a removal by nobody": (lambda j: [*j, Entry(6, "c", None)], Kind.INVENTED),
    "offsets with a hole": (lambda j: [*j[:3], *late(j)[5:]], Kind.HOLE),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_word_is_found(broken: str) -> None:
    ledger, journal = story()
    breaks, kind = BREAKS[broken]
    assert kind in {finding.kind for finding in judge_journal(ledger, "e", breaks(journal))}


def test_places_of_an_older_epoch_are_not_compared() -> None:
    ledger, journal = story()
    moved = [Entry(entry.offset + 10, entry.key, entry.ident) for entry in journal]
    assert judge_journal(ledger, "another", moved) == []
    assert {finding.kind for finding in judge_journal(ledger, "e", moved)} == {Kind.MOVED}


def test_requests_under_way_together_have_no_order() -> None:
    one = asked(1, "a", at_s=1.0, answer=Answer(3.0), writer="one")
    two = asked(1, "b", at_s=2.0, answer=Answer(2.5), writer="two")
    journal = [Entry(1, "b", Ident("two", 1, 0)), Entry(2, "a", Ident("one", 1, 0))]
    assert judge_journal(Ledger([one, two]), "e", journal) == []


def test_what_was_only_processed_may_be_lost_and_may_not_be_torn() -> None:
    request = asked(1, "a", "b", at_s=1.0, answer=Answer(1.5))
    request.level = Level.PROCESSED
    assert judge_journal(Ledger([request]), "e", []) == []
    half = judge_journal(Ledger([request]), "e", [Entry(1, "a", Ident("w", 1, 0))])
    assert [finding.kind for finding in half] == [Kind.TORN]


def test_what_was_acknowledged_before_an_announced_loss_may_be_gone() -> None:
    ledger, journal = story()
    later = renumbered(journal[3:])
    assert {finding.kind for finding in judge_journal(ledger, "new", later)} == {Kind.LOST}
    assert judge_journal(ledger, "new", later, since_s=3.0) == []
    assert judge_journal(ledger, "new", later, since_s=1.2) != []
    assert judge_records(ledger, {}, since_s=9.0) == []
    assert judge_records(ledger, {}, since_s=3.0) != []


@pytest.mark.parametrize(
    ("sent_s", "said", "is_found"),
    [
        pytest.param(2.9, "old-7", False, id="under way, in the epoch that ended"),
        pytest.param(2.9, "new-1", True, id="under way, in the epoch that began"),
        pytest.param(3.1, "old-7", True, id="sent after it was announced"),
    ],
)
def test_an_answer_may_be_on_its_way_when_its_epoch_ends(
    sent_s: float, said: str, is_found: bool
) -> None:
    ledger = Ledger([asked(1, "a", at_s=sent_s, answer=Answer(3.2, said, said))])
    found = [finding.kind for finding in judge_journal(ledger, "new", [], since_s=3.0)]
    assert found == ([Kind.LOST] if is_found else [])


@pytest.mark.parametrize(
    ("sent_s", "is_found"),
    [
        pytest.param(2.9, False, id="under way, in either epoch"),
        pytest.param(3.1, True, id="sent after it was announced"),
    ],
)
def test_the_answer_to_a_removal_may_be_on_its_way_when_its_epoch_ends(
    sent_s: float, is_found: bool
) -> None:
    """It has no bookmark, and so does not say in which epoch it was given."""
    published = asked(1, "a", at_s=1.0, answer=Answer(1.5, "old-1", "old-1"))
    ledger = Ledger([published, removal(2, "a", sent_s, Answer(3.2, deleted=1))])
    journal = [Entry(1, "a", Ident("w", 1, 0))]
    found = [finding.kind for finding in judge_journal(ledger, "new", journal, since_s=3.0)]
    assert found == ([Kind.LOST] if is_found else [])
    world = {"a": Ident("w", 1, 0)}
    found = [finding.kind for finding in judge_records(ledger, world, 3.0, "new")]
    assert found == ([Kind.LOST] if is_found else [])


def test_the_world_is_what_the_journal_comes_to() -> None:
    _, journal = story()
    world = {"a": Ident("w", 3, 0), "b": Ident("w", 1, 1), "c": Ident("w", 3, 1)}
    assert judge_world(journal, world) == []
    for wrong in (
        {**world, "a": Ident("w", 1, 0)},
        {**world, "d": Ident("w", 1, 0)},
        {"a": world["a"]},
    ):
        assert {finding.kind for finding in judge_world(journal, wrong)} == {Kind.WORLD}


def test_the_world_may_be_right_where_the_journal_has_nothing() -> None:
    _, journal = story()
    world = {"a": Ident("w", 3, 0), "b": Ident("w", 1, 1), "c": Ident("w", 3, 1)}
    assert judge_world(journal[3:], world) == []
    assert judge_world(journal[3:], {**world, "a": Ident("w", 1, 0)}) != []
    assert judge_world(journal[3:], {"a": world["a"]}) != []


@pytest.mark.parametrize(
    ("record", "held", "right"),
    [
        ("a", Ident("w", 3, 0), True),
        ("a", Ident("w", 1, 0), False),
        ("a", None, False),
        ("b", Ident("w", 1, 1), True),
        ("b", Ident("w", 4, 0), True),
        ("b", None, False),
        ("d", Ident("w", 9, 0), False),
    ],
)
def test_a_record_without_its_journal_is_as_new_as_promised_or_newer(
    record: str, held: Ident | None, right: bool
) -> None:
    ledger, _ = story()
    world = {"a": Ident("w", 3, 0), "b": Ident("w", 1, 1), "c": Ident("w", 3, 1)}
    world.pop(record, None)
    if held is not None:
        world[record] = held
    assert (judge_records(ledger, world) == []) is right


def test_what_was_not_answered_may_come_later_than_what_was_sent_after_it() -> None:
    """A message on its way to the bus, and a removal that did not see it."""
    late = asked(1, "a", at_s=1.0)
    ledger = Ledger([late, removal(2, "a", 2.0, Answer(2.5))])
    assert judge_records(ledger, {"a": Ident("w", 1, 0)}) == []
    late.answer = Answer(1.5)
    assert judge_records(ledger, {"a": Ident("w", 1, 0)}) != []


def test_a_ledger_adds_up() -> None:
    ledger, _ = story()
    assert ledger.sums() == {
        "requests": 4,
        "requests acknowledged": 3,
        "messages acknowledged as persisted": 4,
        "removals acknowledged": 1,
        "acknowledged as duplicates": 0,
        "requests without an answer": 1,
    }
