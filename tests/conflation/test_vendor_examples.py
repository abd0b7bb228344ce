"""The figures that AMPS and Diffusion explain conflation with, as this engine draws them.

Diffusion: two messages for topic A, one for B, two for C wait for a client, in the order
A1 B1 C1 A2 C2. AMPS: four prices of one ticker come within an interval of two seconds.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.manual_driver import ManualDriver, batches
from tests.support.rules import rule
from tidegate.conflation.frame import Row
from tidegate.keys.merging import Merger

WAITING = "a1 b1 c1 a2 c2"


def summed(current: Any, new: Any) -> Any:
    """The user's merge algorithm of the figure: the sum of two successive values."""
    return {**new, "v": current["v"] + new["v"]}


def flushed(options: str, **topic: Any) -> str:
    """What a client gets of the messages that were waiting."""
    driver = ManualDriver()
    driver.topic(**topic)
    driver.subscribe(options)
    driver.publish(WAITING)
    driver.wait("1s")
    (told,) = driver.received()
    return told


@rule("merge-4", "merge-6")
@pytest.mark.parametrize(
    ("figure", "options", "topic", "expected"),
    [
        ("no conflation", "conflation=none", {}, "a1 b1 c1 a2 c2"),
        ("simple, replace", "conflation=1s", {"replaces": True}, "a2 b1 c2"),
        ("simple, append", "conflation=1s", {}, "b1 a2 c2"),
        (
            "structural by sum, replace",
            "conflation=1s",
            {"merge": Merger("m:summed", summed), "replaces": True},
            "a3 b1 c3",
        ),
        (
            "structural by sum, append",
            "conflation=1s",
            {"merge": Merger("m:summed", summed)},
            "b1 a3 c3",
        ),
        ("structural by a reducer", "conflation=1s,reduce=[/v:sum]", {}, "b1 a3 c3"),
    ],
)
def test_the_figures_of_diffusion(
    figure: str, options: str, topic: dict[str, Any], expected: str
) -> None:
    assert flushed(options, **topic) == expected, figure


@rule("interval-2", "interval-4", "interval-5")
@pytest.mark.parametrize("pace", ["batch", "key"])
def test_the_example_of_amps(pace: str) -> None:
    """Of four prices of IBM in two seconds the last one comes."""
    driver = ManualDriver()
    driver.topic(key="[/tickerId]")
    driver.subscribe(f"conflation=2s,conflation_key=[/tickerId],pace={pace}")
    for price in (150.34, 149.76, 149.32, 151.10):
        driver.publish_documents({"tickerId": "IBM", "price": price})
        driver.wait("400ms")
    driver.wait("400ms")
    (batch,) = batches(driver.take())
    assert [msgspec.json.decode(row.payload) for row in batch.frames] == [
        {"tickerId": "IBM", "price": 151.1}
    ]


@rule("delta-1")
def test_the_delta_example_of_diffusion_as_a_merge_patch() -> None:
    """The client holds a; deltas to ab, ac, acd wait; one delta to acd goes."""
    driver = ManualDriver()
    driver.topic(key="[/name]")
    constant = {"name": "value", "filler": "x" * 50}
    driver.publish_documents({**constant, "text": "a"})
    driver.subscribe("conflation=1s", command="sow_and_delta_subscribe")
    driver.take()
    for text in ("ab", "ac", "acd"):
        driver.publish_documents({**constant, "text": text})
    driver.wait("1s")
    (batch,) = batches(driver.take())
    (row,) = batch.frames
    assert isinstance(row, Row)
    assert row.patch == b'{"name":"value","text":"acd"}'
