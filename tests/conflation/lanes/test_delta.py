"""Deltas: what changed since the value that was sent."""

from __future__ import annotations

import json

import pytest

from tests.support.manual_driver import ManualDriver, batches, counts
from tests.support.rules import rule
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.frame import Frame, Row
from tidegate.conflation.lanes.stateful import StatefulLane
from tidegate.conflation.options.grant import Request, decide, grant
from tidegate.conflation.options.table import Options
from tidegate.keys.merging import Merger
from tidegate.keys.patch import apply
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec

PAD = "x" * 40
BOTH = "sow_and_delta_subscribe"


def sent(driver: ManualDriver, session: str = "s") -> list[str]:
    """Each live row's text: a patch with a tilde in front, a value without its padding."""
    return [_text(row) for batch in batches(driver.take(session)) for row in batch.frames]


def _text(row: Frame) -> str:
    patch = row.patch if isinstance(row, Row) else None
    text = row.payload if patch is None else patch
    return ("" if patch is None else "~") + text.decode().replace(f',"pad":"{PAD}"', "")


def begun(options: str, command: str = BOTH) -> ManualDriver:
    driver = ManualDriver()
    driver.topic()
    driver.publish_documents({"k": "a", "v": 1, "w": 1, "pad": PAD})
    driver.subscribe(options, command=command)
    sent(driver)
    return driver


@rule("delta-6", "delta-4")
def test_with_no_empties_a_net_change_of_nothing_is_counted_by_the_next_row() -> None:
    driver = begun("conflation=1s,no_empties")
    driver.publish_documents(
        {"k": "a", "v": 2, "w": 1, "pad": PAD}, {"k": "a", "v": 1, "w": 1, "pad": PAD}
    )
    driver.wait("1s")
    assert sent(driver) == []
    driver.publish_documents({"k": "a", "v": 1, "w": 5, "pad": PAD})
    driver.wait("1s")
    (batch,) = batches(driver.take())
    (row,) = batch.frames
    assert isinstance(row, Row)
    assert row.messages == 3


@rule("delta-1", "merge-4")
@pytest.mark.parametrize("is_slow", [False, True])
def test_the_last_row_of_a_key_is_the_base_of_the_next_delta(is_slow: bool) -> None:
    """Also where messages keep the places of those that they replace."""
    driver = ManualDriver()
    driver.topic(replaces=True)
    driver.subscribe("conflation=1s,never=[/v = 2]", command=BOTH)
    driver.take()
    held = b""
    for number, values in enumerate([[(0, 0)], [(1, 1)], [(1, 2), (2, 3), (3, 4)], [(4, 4)]]):
        for v, w in values:
            driver.publish_documents({"k": "a", "v": v, "w": w, "pad": PAD})
        driver.wait("1s")
        if is_slow and number == 1:
            continue  # it gets two flushes as one
        for batch in batches(driver.take()):
            for row in batch.frames:
                patch = row.patch if isinstance(row, Row) else None
                held = row.payload if patch is None else apply(held, patch)
    assert json.loads(held) == {"k": "a", "v": 4, "w": 4, "pad": PAD}


def test_without_an_interval_each_message_is_a_delta_to_the_one_before() -> None:
    driver = begun("")
    driver.publish_documents(
        {"k": "a", "v": 2, "w": 1, "pad": PAD}, {"k": "a", "v": 2, "w": 3, "pad": PAD}
    )
    driver.publish_documents({"k": "a", "v": 2, "w": 3, "pad": PAD})
    driver.flush()
    assert sent(driver) == ['~{"k":"a","v":2}', '~{"k":"a","w":3}', '~{"k":"a"}']


@rule("delta-2")
def test_a_value_goes_where_it_is_no_longer_than_the_delta() -> None:
    """Ties go to the value, as in Diffusion."""
    driver = ManualDriver()
    driver.topic()
    driver.publish_documents({"k": "a", "v": 1})
    driver.subscribe("", command=BOTH)
    sent(driver)
    driver.publish_documents({"k": "a", "v": 2})
    driver.flush()
    assert sent(driver) == ['{"k":"a","v":2}']


@rule("delta-1")
def test_null_asks_for_the_value() -> None:
    driver = begun("conflation=1s")
    driver.publish_documents({"k": "a", "v": None, "w": 1, "pad": PAD})
    driver.wait("1s")
    assert sent(driver) == ['{"k":"a","v":null,"w":1}']


@rule("delta-1")
def test_without_a_snapshot_a_key_begins_with_its_value() -> None:
    driver = begun("conflation=1s", command="delta_subscribe")
    for value in (2, 3):
        driver.publish_documents({"k": "a", "v": value, "w": 1, "pad": PAD})
        driver.wait("1s")
    assert sent(driver) == ['{"k":"a","v":3,"w":1}']
    driver.publish_documents({"k": "a", "v": 4, "w": 1, "pad": PAD})
    driver.wait("1s")
    assert sent(driver) == ['~{"k":"a","v":4}']


@rule("delta-1")
def test_who_joins_while_something_is_held_gets_values_until_it_is_flushed() -> None:
    driver = begun("conflation=1s")
    driver.publish_documents({"k": "a", "v": 2, "w": 1, "pad": PAD})
    driver.subscribe("conflation=1s", command=BOTH, session="late")
    sent(driver, "late")
    driver.publish_documents({"k": "a", "v": 2, "w": 2, "pad": PAD})
    driver.wait("1s")
    assert sent(driver) == ['~{"k":"a","v":2,"w":2}']
    assert sent(driver, "late") == ['{"k":"a","v":2,"w":2}']
    driver.publish_documents({"k": "a", "v": 3, "w": 2, "pad": PAD})
    driver.wait("1s")
    assert sent(driver) == sent(driver, "late") == ['~{"k":"a","v":3}']


@rule("delta-1")
@pytest.mark.parametrize("options", ["select=[-/,+/w]", "conflation=1s,select=[-/,+/w]"])
def test_the_key_fields_are_in_it_selected_or_not(options: str) -> None:
    """A client could not tell which record changed."""
    driver = ManualDriver()
    driver.topic()
    driver.publish_documents({"k": "a", "v": 1, "w": {"x": PAD, "y": 1}})
    driver.subscribe(options, command=BOTH)
    sent(driver)
    driver.publish_documents({"k": "a", "v": 1, "w": {"x": PAD, "y": 2}})
    driver.wait("1s")
    assert sent(driver) == ['~{"k":"a","w":{"y":2}}']


@rule("delta-1", "delta-4", "merge-1")
def test_a_suppressed_value_is_no_base_and_does_not_count_with_an_exempt_row() -> None:
    """The empty entry beside it was never sent."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,no_empties", command=BOTH)
    sent(driver)
    driver.publish_documents({"k": "a", "v": 0, "pad": PAD})
    driver.wait("1s")
    sent(driver)
    value = f'{{"k":"a","v":1,"pad":"{PAD}"}}'.encode()
    frames = [Frame(n, value, '["a"]', n, exempt=n == 3) for n in (2, 3, 4)]
    driver.engine.publish("px", frames, driver.now)
    driver.wait("1s")
    assert sent(driver) == ['{"k":"a","v":1}'], "the exempt one, in full"
    driver.engine.publish("px", [Frame(5, value, '["a"]', 5, exempt=True)], driver.now)
    driver.wait("1s")
    (batch,) = batches(driver.take())
    assert [getattr(row, "messages", 1) for row in batch.frames] == [1]


REDUCERS = Reduce.of({"/v": "sum", "/w": "count@n"})
MERGER = Merger("tests:v", lambda current, new: {**new, "v": current["v"] + new["v"], "n": 1})


@rule("merge-8", "merge-6")
@pytest.mark.parametrize("merge", [REDUCERS, MERGER, None])
@pytest.mark.parametrize("options", ["receipt", "no_empties,receipt"])
@pytest.mark.parametrize("command", [BOTH, "delta_subscribe"])
def test_combined_messages_are_sent_as_full_values(
    merge: Reduce | Merger | None, options: str, command: str
) -> None:
    driver = ManualDriver()
    driver.topic(merge=Reduce() if merge is None else merge)
    own = f",reduce={REDUCERS}" if merge is None else ""
    driver.publish_documents({"k": "a", "v": 1, "w": 1, "pad": PAD})
    driver.subscribe(f"conflation=1s,{options}{own}", command=command)
    sent(driver)
    for _ in range(2):
        driver.publish_documents(*({"k": "a", "v": 1, "w": 1, "pad": PAD} for _ in range(3)))
        driver.wait("1s")
        (text,) = sent(driver)
        told = json.loads(text)
        assert (told["v"], "n" in told) == (3, True)


@rule("merge-8")
def test_a_request_for_deltas_with_reducers_gets_a_warning() -> None:
    """It shares the lane of those who asked for values."""
    definition = Definition(History(1_000), KeySpec.parse("[/k]"))
    options = Options.parse("conflation=1s,no_empties,reduce=[/v:sum]")
    deltas = grant(Request("px", definition, options, command=BOTH))
    values = decide("px", definition, Options.parse("conflation=1s,reduce=[/v:sum]"))
    assert deltas.subscription.lane_id == values.lane_id
    assert deltas.warnings == ("combined messages have no deltas, so every row is a full value",)


@rule("delta-7")
def test_a_request_for_deltas_of_another_key_gets_full_values_and_a_warning() -> None:
    definition = Definition(History(1_000), KeySpec.parse("[/k]"))
    options = Options.parse("conflation=1s,no_empties,conflation_key=[/k,/side]")
    deltas = grant(Request("px", definition, options, command=BOTH))
    values = decide("px", definition, Options.parse("conflation=1s,conflation_key=[/k,/side]"))
    assert deltas.subscription.lane_id == values.lane_id
    assert deltas.warnings == (
        "rows of another key than the topic's have no deltas, so every row is a full value",
    )


# What nobody needs to be told of, and what becomes of it.

QUIET = "conflation=1s,no_empties,receipt"
DELTAS = "sow_and_delta_subscribe"


def said(driver: ManualDriver, *values: int) -> list[tuple[str, int, int]]:
    """Publishes a value of key a each second; the rows with their counts."""
    for value in values:
        driver.publish(f"a{value}")
        driver.wait("1s")
    return counts(driver.take())


@rule("delta-4")
def test_a_repeated_value_is_sent_once() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(QUIET, command=DELTAS, counted=True)
    driver.take()
    told = [row for value in (1, 1, 1, 1, 2) for row in said(driver, value)]
    assert told == [("a1", 1, 1), ("a2", 4, 2)]


@rule("delta-4")
def test_what_the_snapshot_said_is_not_said_again() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1")
    driver.subscribe(QUIET, command=DELTAS, counted=True)
    driver.take()
    assert said(driver, 1) == []


def read_early() -> ManualDriver:
    """A driver whose reader `early` has read a1."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(QUIET, command=DELTAS, counted=True, session="early")
    driver.publish("a1")
    driver.wait("1s")
    driver.take("early")
    return driver


@rule("delta-4", "delta-6")
def test_a_repeated_value_goes_only_to_who_joined_while_it_was_held() -> None:
    driver = read_early()
    driver.publish("a1")
    driver.subscribe(QUIET, command=DELTAS, counted=True, session="late")
    driver.take("late")
    driver.publish("a1")
    driver.wait("1s")
    assert driver.take("early") == []
    assert counts(driver.take("late")) == [("a1", 1, 3)]
    driver.publish("a2")
    driver.wait("1s")
    assert counts(driver.take("early")) == [("a2", 3, 2)]
    assert counts(driver.take("late")) == [("a2", 1, 4)]


@rule("delta-3", "delta-4")
def test_a_record_that_was_deleted_and_is_back_is_sent_to_who_joined_without_it() -> None:
    """It is what the lane last sent, and without `oof` nobody was told that it had left."""
    driver = read_early()
    driver.remove("a0")
    driver.subscribe(QUIET, command=DELTAS, counted=True, session="late")
    assert driver.received("late") == ["group of 0", "group ends at e1-2"]
    driver.publish("a1")
    driver.wait("1s")
    assert counts(driver.take("late")) == [("a1", 1, 3)]


@rule("delta-3", "delta-4", "merge-2")
def test_the_first_value_of_a_key_is_sent_although_flush_on_let_it_go_before_the_second() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,no_empties,flush_on=[/v = 9]", command=DELTAS)
    driver.take()
    driver.publish("a1 b9 a2")
    driver.flush()
    assert driver.received() == ["a1"]
    driver.wait("1s")
    assert driver.received() == ["b9 a2"]


@rule("delta-4")
def test_who_joined_with_a_value_that_is_replaced_by_the_last_one_gets_that() -> None:
    driver = read_early()
    driver.publish("a2")
    driver.subscribe(QUIET, command=DELTAS, counted=True, session="late")
    assert driver.received("late")[1] == "snapshot: a2"
    driver.publish("a1")
    driver.wait("1s")
    assert driver.take("early") == []
    assert counts(driver.take("late")) == [("a1", 1, 3)]


@rule("delta-4", "merge-1")
def test_an_exempt_message_is_sent_even_without_a_change() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(QUIET, command=DELTAS, counted=True)
    driver.take()
    driver.publish("a1 a1", exempt=True)
    driver.wait("1s")
    assert counts(driver.take()) == [("a1", 1, 1), ("a1", 1, 2)]


@rule("removal-3", "delta-6")
def test_messages_of_a_key_that_came_and_went_are_counted_when_it_comes_again() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,oof,receipt", command="sow_and_subscribe", counted=True)
    driver.take()
    driver.publish("a1 a2")
    driver.remove("a0")
    driver.wait("1s")
    assert driver.received() == []
    assert said(driver, 3) == [("a3", 3, 1)]


@rule("delta-6")
def test_a_member_that_was_behind_gets_the_same_counts() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,oof,receipt", command="sow_and_subscribe", counted=True)
    driver.take()
    driver.publish("a1")
    driver.wait("1s")
    driver.remove("a0")
    driver.wait("1s")
    assert driver.received() == []
    assert said(driver, 2) == [("a2", 2, 1)]


@rule("removal-2", "merge-1")
def test_an_exempt_message_in_between_is_taken_back() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,oof,receipt", command="sow_and_subscribe", counted=True)
    driver.take()
    driver.publish("a1")
    driver.remove("a0")
    driver.publish("a2", exempt=True)
    driver.wait("1s")
    assert driver.received() == ["a2"]
    driver.remove("a0")
    driver.wait("1s")
    assert counts(driver.take()) == [("-a2", 1, 1)]


@rule("delta-6")
def test_who_joins_later_counts_none_from_before() -> None:
    """Without an interval too."""
    driver = ManualDriver()
    driver.topic()
    for session in ("early", "late"):
        driver.subscribe("no_empties", command=DELTAS, session=session)
        driver.publish("a1 a1")
        driver.flush()
        driver.take(session)
    driver.publish("a2")
    driver.flush()
    assert counts(driver.take("early")) == [("a2", 4, 2)]
    assert counts(driver.take("late")) == [("a2", 3, 3)]


@rule("delta-6")
def test_a_member_that_joined_in_between_gets_one_row() -> None:
    """What a late joiner is told with a removal is not told again with the next row."""
    driver = ManualDriver()
    driver.topic()
    receipts = "conflation=1s,oof,receipt"
    driver.subscribe(receipts, command="sow_and_subscribe", counted=True, session="early")
    driver.take("early")
    driver.publish("a1")
    driver.subscribe(receipts, command="sow_and_subscribe", counted=True)
    driver.take()
    driver.publish("a2")
    driver.remove("a0")
    driver.wait("1s")
    driver.publish("a3")
    driver.wait("1s")
    assert sum(messages for _, messages, _ in counts(driver.take())) == 2
    assert counts(driver.take("early")) == [("a3", 3, 1)]


@rule("delta-4", "delta-6", "removal-2")
@pytest.mark.parametrize(
    ("options", "command", "repeats"),
    [(QUIET, DELTAS, True), ("conflation=1s,oof,receipt", "sow_and_subscribe", False)],
)
def test_rows_of_those_who_joined_are_not_kept_for_who_is_behind(
    options: str, command: str, repeats: bool
) -> None:
    """Law 3: a slow member costs its changed keys, not the flushes that it missed."""
    driver = ManualDriver()
    driver.topic()
    slow = driver.subscribe(options, command=command, counted=True, session="slow")
    for number in range(10):
        driver.publish("a1")
        driver.subscribe(options, command=command, counted=True, session=f"s{number}")
        if repeats:
            driver.publish("a1")
        else:
            driver.remove("a0")
        driver.wait("1s")
        assert len(batches(driver.take(f"s{number}"))) == 2, "the snapshot and a row of its own"
        driver.engine.close_session(f"s{number}")
    lane = driver.engine.session("slow").subscribers[slow, "px"].lane
    assert isinstance(lane, StatefulLane)
    assert len(lane._flushes) <= 2
    driver.publish("a2")
    driver.wait("1s")
    assert counts(driver.take("slow"))[-1:] == [("a2", 21 if repeats else 11, 1)]
