"""The judge finds each kind of broken promise, and nothing where all is well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.campaign.faults import Loss
from tests.campaign.held import Entry, Held
from tests.campaign.judge import (
    Case,
    Kind,
    judge_definitions,
    judge_gateways,
    judge_topic,
)
from tests.campaign.ledger import Definition, Ident, Ledger, Request, Row, Verb
from tests.campaign.lineage import Lineage, Position
from tests.campaign.reader import Reader, Return, Seen, What
from tests.campaign.testimony import differences, judge_positions, judge_reader

TOPIC = "t"
WRITER = "t-plain-0"


def row(number: int, index: int = 0, key: str = "a") -> Row:
    return {"k": key, "own": 1, "w": WRITER, "n": number, "i": index, "by": {WRITER: number}}


def request(number: int, first: str, *rows: Row, at_s: float = 0.0, **more: Any) -> Request:
    """Make an acknowledged request: sent at its number, answered half a second later."""
    sent_at_s = at_s or float(number)
    verb = more.pop("verb", Verb.PUBLISH)
    keys = more.pop("keys", tuple(each["k"] for each in rows))
    made = Request(TOPIC, WRITER, number, verb, rows, keys, sent_at_s, attempts=1, **more)
    answer: dict[str, Any] = {"deleted": 1}
    if first:
        epoch, _, offset = first.rpartition("-")
        answer |= {"first": first, "last": f"{epoch}-{int(offset) + max(1, len(rows)) - 1}"}
    made.acknowledge(sent_at_s + 0.5, answer)
    return made


def entry(offset: int, value: Row, *, is_removal: bool = False) -> Entry:
    return Entry(offset, value["k"], None if is_removal else Ident.of(value), value)


def case(
    requests: Sequence[Request],
    journal: Sequence[Entry],
    *,
    losses: Sequence[Loss] = (),
    epochs: str = "e",
    former: str = "",
) -> Case:
    world: dict[str, Row] = {}
    for each in journal:
        if each.ident is None:
            world.pop(each.key, None)
        else:
            world[each.key] = each.value or {}
    head = Position(epochs, journal[-1].offset if journal else 0)
    lineage = Lineage()
    lineage.note_chain(epochs, former)
    continues = {
        name: through
        for name in [pair.partition(":")[0] for pair in former.split()]
        if (through := lineage.through(epochs, name)) is not None and through >= 0
    }
    held = Held(head, continues, journal, world)
    return Case(TOPIC, Ledger(list(requests)), lineage, losses, held)


def kinds(given: Case) -> set[Kind]:
    return {finding.kind for finding in judge_topic(given)}


GOOD_REQUESTS = (request(1, "e-1", row(1)), request(2, "e-2", row(2), row(2, 1, "b")))
GOOD_JOURNAL = (entry(1, row(1)), entry(2, row(2)), entry(3, row(2, 1, "b")))


def test_nothing_is_found_where_all_is_well() -> None:
    assert kinds(case(GOOD_REQUESTS, GOOD_JOURNAL)) == set()


def without_last() -> Case:
    return case(GOOD_REQUESTS, GOOD_JOURNAL[:1])


def doubled() -> Case:
    return case(GOOD_REQUESTS, (*GOOD_JOURNAL, entry(4, row(1))))


def torn() -> Case:
    open_ended = replace(GOOD_REQUESTS[1], answered_at_s=0.0, first=None, last=None)
    return case([GOOD_REQUESTS[0], open_ended], GOOD_JOURNAL[:2])


def moved() -> Case:
    return case(GOOD_REQUESTS[:1], [entry(1, row(2)), entry(2, row(1))])


def reordered() -> Case:
    early, late = request(1, "e-2", row(1)), request(2, "e-1", row(2))
    return case([early, late], [entry(1, row(2)), entry(2, row(1))])


def test_what_another_attempt_brought_after_a_split_has_no_order() -> None:
    early, late = request(1, "f-1", row(1)), request(2, "e-1", row(2))
    found = case([early, late], [entry(1, row(2)), entry(2, row(1))])
    assert Kind.REORDERED not in kinds(found)


def invented() -> Case:
    return case(GOOD_REQUESTS, (*GOOD_JOURNAL, entry(4, row(9))))


def hole() -> Case:
    return case(GOOD_REQUESTS, (*GOOD_JOURNAL[:2], entry(4, row(2, 1, "b"))))


def wrong_value() -> Case:
    return case(GOOD_REQUESTS[:1], [entry(1, {**row(1), "own": 0})])


def lost_patch() -> Case:
    patch = {**row(2), "by": {"other": 2}}
    requests = [GOOD_REQUESTS[0], request(2, "e-2", patch, verb=Verb.MERGE)]
    return case(requests, [entry(1, row(1)), entry(2, patch)])


def lost_removal() -> Case:
    removal = request(2, "", verb=Verb.REMOVE, keys=("a",))
    return case([GOOD_REQUESTS[0], removal], [entry(1, row(1))])


def unasked_removal() -> Case:
    return case(GOOD_REQUESTS[:1], [entry(1, row(1)), entry(2, row(1), is_removal=True)])


def old_record() -> Case:
    found = case(GOOD_REQUESTS, GOOD_JOURNAL)
    found.held = replace(found.held, world={"a": row(1), "b": row(2, 1, "b")})
    return found


def lost_epoch() -> Case:
    return case([request(1, "e-1", row(1)), request(2, "f-1", row(2))], [entry(1, row(1))])


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (without_last, Kind.LOST),
        (doubled, Kind.DOUBLED),
        (torn, Kind.TORN),
        (moved, Kind.MOVED),
        (reordered, Kind.REORDERED),
        (invented, Kind.INVENTED),
        (hole, Kind.HOLE),
        (wrong_value, Kind.VALUE),
        (lost_patch, Kind.VALUE),
        (lost_removal, Kind.REMOVAL),
        (unasked_removal, Kind.REMOVAL),
        (old_record, Kind.WORLD),
        (lost_epoch, Kind.LOST),
    ],
)
def test_each_broken_promise_is_found(broken: Callable[[], Case], kind: Kind) -> None:
    assert kind in kinds(broken())


def test_what_redis_has_lost_by_itself_is_no_finding() -> None:
    lost = [request(1, "e-1", row(1)), request(2, "e-2", row(2))]
    loss = Loss("failover", 2.0, 3.0, {TOPIC: 1})
    given = case(lost, [entry(1, row(1))], losses=[loss], epochs="f", former="e:1")
    assert kinds(given) == set()
    assert Kind.LOST in kinds(replace(given, losses=[replace(loss, kept={TOPIC: 2})]))
    assert Kind.LOST in kinds(replace(given, losses=[replace(loss, ended_at_s=1.5)]))


def test_gateways_that_differ_are_found() -> None:
    one = case(GOOD_REQUESTS, GOOD_JOURNAL).held
    other = replace(one, world={**one.world, "a": row(1)})
    assert not list(judge_gateways(TOPIC, [one, one], ("e", 3)))
    assert list(judge_gateways(TOPIC, [one, other], ("e", 3)))
    assert list(judge_gateways(TOPIC, [one, one], ("f", 3)))


def saw(what: What, at: str, number: int = 0, mode: str = "publish", index: int = 0) -> Seen:
    place = Position.of(at)
    if what is not What.ROW:
        return Seen(what, 0.0, 0, place, mode)
    value = row(number, index)
    return Seen(what, 0.0, 0, place, mode, "a", Ident.of(value), entry(0, value).digest)


LINE = [request(number, f"e-{number}", row(number)) for number in range(1, 4)]
LINE_JOURNAL = [entry(number, row(number)) for number in range(1, 4)]
VISIT, FIRST, SECOND, THIRD = (
    saw(What.VISIT, ""),
    *(saw(What.ROW, f"e-{number}", number) for number in range(1, 4)),
)


def reader(*seen: Seen, options: str = "conflation=none,oof") -> Reader:
    made = Reader("reader", TOPIC, options, "subscribe", Return.BY_ID, 0)
    made.seen += seen
    return made


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        ([VISIT, FIRST, SECOND, THIRD], None),
        ([VISIT, FIRST, SECOND, saw(What.VISIT, "e-2"), THIRD], None),
        ([VISIT, FIRST, SECOND, SECOND], Kind.TWICE),
        ([VISIT, FIRST, THIRD], Kind.GAP),
        ([VISIT, FIRST, THIRD, SECOND], Kind.BACKWARD),
        ([VISIT, FIRST, THIRD, saw(What.VISIT, "e-3"), SECOND], Kind.BACKWARD),
        ([VISIT, FIRST, saw(What.ROW, "e-2", 3)], Kind.HISTORIES),
        (
            [VISIT, FIRST, saw(What.VISIT, "e-1"), saw(What.RESUMED, "e-1", mode="snapshot")],
            Kind.RESET,
        ),
    ],
)
def test_what_a_reader_must_not_be_sent_is_found(seen: Sequence[Seen], kind: Kind | None) -> None:
    given = case(LINE, LINE_JOURNAL)
    found = {each.kind for each in judge_reader(reader(*seen), given)}
    assert found == set() if kind is None else kind in found


def test_an_answer_that_broke_off_may_be_older_where_it_begins_again() -> None:
    """Its rows have no id, so a gateway that has read less cannot know of them."""
    begins, broken_off = saw(What.GROUP_BEGIN, "e-1"), saw(What.ROW, "e-3", 3, "snapshot")
    again = saw(What.RESUMED, "e-1", mode="snapshot")
    older = saw(What.ROW, "e-2", 2, "snapshot")
    arrived = saw(What.VISIT, "e-1")
    given = replace(case(LINE, LINE_JOURNAL), deaths=[(-1.0, 100.0)])
    patched = "conflation=1s,oof"
    seen = [VISIT, FIRST, begins, broken_off, arrived, again, begins, older]
    assert not list(judge_reader(reader(*seen, options=patched), given))
    without_arrival = [each for each in seen if each is not arrived]
    found = {each.kind for each in judge_reader(reader(*without_arrival, options=patched), given)}
    assert Kind.BACKWARD in found


def test_a_running_stream_may_begin_anew_where_redis_has_died() -> None:
    """Its gateway has read more than is left, which nobody was promised; an arrival has a place."""
    given = replace(case(LINE, LINE_JOURNAL), deaths=[(-1.0, 100.0)])
    anew = saw(What.RESUMED, "e-1", mode="snapshot")
    assert not list(judge_reader(reader(VISIT, FIRST, anew), given))
    arrived = reader(VISIT, FIRST, saw(What.VISIT, "e-1"), anew)
    assert Kind.RESET in {each.kind for each in judge_reader(arrived, given)}
    assert Kind.RESET in {
        each.kind for each in judge_reader(reader(VISIT, FIRST, anew), replace(given, deaths=()))
    }


@pytest.mark.parametrize(
    ("until_s", "found"), [(20.0, set()), (5.0, {Kind.RESET})], ids=["not ready", "ready"]
)
def test_a_gateway_learns_of_a_loss_while_it_is_not_ready(until_s: float, found: set[Kind]) -> None:
    """On a busy machine it takes longer than any constant."""
    given = replace(case(LINE, LINE_JOURNAL), deaths=[(0.0, 1.0)], unready=[[(0.5, until_s)]])
    late = replace(saw(What.RESUMED, "e-1", mode="snapshot"), at_s=20.5)
    assert {each.kind for each in judge_reader(reader(VISIT, FIRST, late), given)} == found


def test_a_reader_who_saw_what_is_gone_is_told() -> None:
    given = case(LINE[:2], LINE_JOURNAL[:2], epochs="f", former="e:1")
    silent = reader(VISIT, FIRST, saw(What.ROW, "e-2", 9), saw(What.ROW, "f-2", 2))
    told = reader(
        VISIT,
        FIRST,
        saw(What.ROW, "e-2", 9),
        saw(What.RESUMED, "e-2", mode="snapshot"),
        saw(What.GROUP_BEGIN, "e-2"),
        saw(What.ROW, "f-1", 1, "snapshot"),
        saw(What.GROUP_END, "f-1"),
        saw(What.ROW, "f-2", 2),
    )
    found = judge_reader(silent, given)
    assert Kind.SILENT in {each.kind for each in found}
    assert not list(judge_reader(told, given))


def test_a_position_that_was_two_messages_is_found() -> None:
    one, other = reader(VISIT, saw(What.ROW, "x-1", 1)), reader(VISIT, saw(What.ROW, "x-1", 2))
    assert not list(judge_positions(TOPIC, Ledger(), [one, one]))
    assert list(judge_positions(TOPIC, Ledger(), [one, other]))


def test_a_reader_who_holds_something_else_is_found() -> None:
    assert differences(reader(), case(LINE, LINE_JOURNAL).held) == ["a"]


def test_definitions_are_judged() -> None:
    def change(tag: str, at_s: float, text: str, topic: str = "shared") -> Definition:
        return Definition(topic, "d", text, at_s, tag, at_s + 0.1, 200)

    fine = Ledger(definitions=[change("1", 1, "a"), change("2", 2, "b"), change("", 3, "c", "own")])
    defined = {"own": ("c", "e"), "shared": ("b", "e")}
    assert not list(judge_definitions(fine, [defined, defined], ()))
    twice = Ledger(definitions=[change("1", 1, "a"), change("1", 2, "b")])
    found = {each.kind for each in judge_definitions(twice, [defined], ())}
    assert found == {Kind.CONDITION}
    other = {**defined, "own": ("a", "e")}
    found = {each.kind for each in judge_definitions(fine, [other, defined], ())}
    assert found == {Kind.DEFINITION, Kind.DIFFERS}


def test_epochs_that_split_have_their_beginning_in_common() -> None:
    lineage = Lineage()
    lineage.note_chain("f", "e:5")
    lineage.note_chain("g", "d:9 e:3")
    assert lineage.through("g", "f") == 3
    assert lineage.has("g", Position("f", 3))
    assert not lineage.continues("g", Position("f", 3))
    assert not lineage.has("g", Position("f", 4))
    assert lineage.through("x", "f") is None
    assert lineage.through("f", "x") == -1
