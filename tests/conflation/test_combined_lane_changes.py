"""Rows that reducers and mergers made survive a change of options of a slow reader."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.support.manual_driver import ManualDriver, batches, counts
from tests.support.rules import rule
from tidegate.conflation.frame import receipt_of
from tidegate.conflation.outputs import Output
from tidegate.keys.merging import Merger
from tidegate.keys.spec import KeySpec

pytestmark = rule("change-5")


REDUCE = "reduce=[/v:sum],receipt"
MERGER = Merger("tests:summed", lambda current, new: {**new, "v": current["v"] + new["v"]})


@rule("change-1", "change-5")
@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (f"conflation=200ms,{REDUCE}", f"conflation=500ms,{REDUCE}", ""),
        (f"conflation=200ms,{REDUCE}", f"conflation=200ms,pace=key,{REDUCE}", ""),
        (f"conflation=200ms,{REDUCE}", f"conflation=200ms,{REDUCE}", "/v > 0"),
        (f"conflation=200ms,{REDUCE}", "conflation=500ms,reduce=[/v:sum,/v:count@n],receipt", ""),
        (f"conflation=200ms,{REDUCE}", "conflation=500ms,receipt", ""),
        (f"conflation=200ms,{REDUCE}", "conflation=none,receipt", ""),
    ],
)
def test_combined_rows_that_were_not_taken_are_sent_after_a_move(
    before: str, after: str, wanted: str
) -> None:
    """A part that was cut off, a flush that was missed, and what is held."""
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe(before)
    undelivered(driver)
    driver.change(name, after, wanted=wanted)
    driver.wait("1s")
    assert total(driver.take(bytes_max=1)) == {"a": 3, "b": 4}


@rule("change-5")
@pytest.mark.parametrize(
    ("policy", "before"), [("conflate", "conflation=200ms"), ("always", "conflation=none")]
)
def test_rows_of_a_merger_are_sent_after_a_move(policy: str, before: str) -> None:
    driver = ManualDriver()
    driver.topic(policy=policy, merge=MERGER)
    name = driver.subscribe(before, counted=True)
    undelivered(driver)
    driver.change(name, "conflation=500ms", counted=True)
    driver.wait("1s")
    rows = driver.take(bytes_max=1)
    assert total(rows) == {"a": 3, "b": 4}
    assert len(counts(rows)) == 2, "they are combined"


@rule("merge-5", "change-5")
def test_values_of_a_key_that_must_not_meet_stay_apart_over_a_move() -> None:
    driver = ManualDriver()
    driver.topic(match=KeySpec.parse("[/g]"))
    name = driver.subscribe("conflation=200ms,receipt")
    driver.publish("aX1 aY2")
    driver.wait("200ms")
    driver.publish("aX3")
    driver.change(name, "conflation=500ms,receipt")
    driver.wait("1s")
    assert counts(driver.take()) == [("aY2", 1, 2), ("aX3", 2, 1)]


@rule("change-5")
def test_messages_of_a_queue_are_combined_by_the_new_rules() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=none")
    driver.publish("a1 b1 a1 a1")
    driver.change(name, f"conflation=200ms,{REDUCE}")
    driver.wait("1s")
    assert counts(driver.take()) == [("b1", 1, 2), ("a3", 3, 1)]


def undelivered(driver: ManualDriver) -> None:
    """Rows of a and b: a piece is taken, a flush is missed, something is held."""
    driver.publish("a1 b1 b1")
    driver.wait("200ms")
    driver.take_once(1)
    for _ in range(2):
        driver.publish("a1 b1")
        driver.wait("150ms")


def total(outputs: Sequence[Output]) -> dict[str, int]:
    """The sum of all values of a key that come, the first piece of `undelivered` included."""
    sums = {"a": 1, "b": 0}
    told = {"a": 1, "b": 0}
    for batch in batches(outputs):
        for frame in batch.frames:
            value = json.loads(frame.payload)
            sums[value["k"]] += value["v"]
            told[value["k"]] += receipt_of(frame).messages
    assert told == sums, "receipts say what sums say"
    return sums
