"""What 60East documents of conflated subscriptions, rule by rule, as examples.

`pace=key` is AMPS's own timing. An example is a list of steps: `publish`, `remove`, `wait` and what
is received then. Where the contract says more than AMPS does, it is the contract's rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from tests.support.manual_driver import ManualDriver, batches, counts
from tests.support.rules import rule
from tidegate.conflation.errors import OptionsInvalid
from tidegate.conflation.frame import Row

BOTH = "sow_and_subscribe"


@dataclass(frozen=True)
class Example:
    """Steps such as `a1 b1`, `-a` (delete), `2s` (wait), `> a1 b1` (heard)."""

    name: str
    options: str
    steps: tuple[str, ...]
    before: str = ""
    wanted: str = ""
    order: str = ""
    command: str = "subscribe"
    topic_key: str = "[/k]"


EXAMPLES = (
    Example(
        "1.3 steps 1 and 4: the first message starts its key's interval, at its end it goes",
        "conflation=2s,pace=key",
        ("a1", "1999ms", ">", "1ms", "> a1"),
    ),
    Example(
        "1.3 step 2: another message for the key replaces what is pending",
        "conflation=2s,pace=key",
        ("a1", "400ms", "a2", "1500ms", "a3", "100ms", "> a3"),
    ),
    Example(
        "1.3 step 3: an oof for a key that was never delivered is not delivered",
        "conflation=2s,pace=key,oof",
        ("a1", "-a", "2s", ">"),
    ),
    Example(
        "1.3: per key, from its first arrival, no global tick",
        "conflation=1s,pace=key",
        ("a1", "500ms", "b1", "500ms", "> a1", "500ms", "> b1"),
    ),
    Example(
        "1.3: the period under continuous updates is the interval plus the gap to the next",
        "conflation=2s,pace=key",
        ("a1", "2s", "> a1", "300ms", "a2", "1999ms", ">", "1ms", "> a2"),
    ),
    Example(
        "1.3: a later update does not restart the timer, it is no debounce",
        "conflation=1s,pace=key",
        ("a1", "900ms", "a2", "100ms", "> a2"),
    ),
    Example(
        "1.3: no leading edge, a lone update waits a whole interval",
        "conflation=2s,pace=key",
        ("10s", "a1", "1900ms", ">", "100ms", "> a1"),
    ),
    Example(
        "1.5: the snapshot is not conflated, the live part is",
        "conflation=1s",
        ("> begin a1 b1 end", "a2 a3", "1s", "> a3"),
        before="a1 b1",
        command=BOTH,
    ),
    Example(
        "1.5: a topic with a key needs no conflation_key", "conflation=1s", ("a1", "1s", "> a1")
    ),
    Example(
        "1.5: a topic without one names it",
        "conflation=1s,conflation_key=[/k]",
        ("a1 b1 a2", "1s", "> b1 a2"),
        topic_key="",
    ),
    Example(
        "1.5: a message that lacks the key field conflates with others that do",
        "conflation=1s,conflation_key=[/g]",
        ("aX1 b1 c2", "1s", "> aX1 c2"),
        topic_key="",
    ),
    Example(
        "1.5: an oof for a key that was delivered, with what this subscriber last could receive",
        "conflation=1s,oof",
        ("a5", "1s", "> a5", "a1", "1s", "> -a5"),
        wanted="/v > 4",
    ),
    Example(
        "1.5: rows of the snapshot count as delivered",
        "conflation=1s,oof",
        ("> begin a5 end", "a1", "1s", "> -a5"),
        before="a5",
        wanted="/v > 4",
        command=BOTH,
    ),
    Example(
        "1.5: update and oof in one interval are one oof",
        "conflation=1s,oof",
        ("> begin a5 end", "a6 a1", "1s", "> -a6"),
        before="a5",
        wanted="/v > 4",
        command=BOTH,
    ),
    Example(
        "1.5: out and back in one interval is only the end's state",
        "conflation=1s,oof",
        ("> begin a5 end", "a1 a7", "1s", "> a7"),
        before="a5",
        wanted="/v > 4",
        command=BOTH,
    ),
    Example(
        "1.5: the filter comes before conflation, message by message",
        "conflation=1s",
        ("a5 a1 b9 b2", "1s", "> a5 b9"),
        wanted="/v > 4",
    ),
    Example(
        "1.5: pagination composes",
        "oof,conflation=3000ms,top_n=2,skip_n=0",
        ("> begin b5 d4 end", "a9", "3s", "> -d4 a9"),
        before="a1 b5 c3 d4",
        order="/v DESC",
        command=BOTH,
    ),
    Example(
        "1.6: what was held at the end of a subscription is dropped",
        "conflation=1s",
        ("a1", "stop", "1s", "> unsubscribed"),
    ),
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_documented_rule(example: Example) -> None:
    driver = ManualDriver()
    driver.topic(key=example.topic_key)
    if example.before:
        driver.publish(example.before)
    name = driver.subscribe(
        example.options, wanted=example.wanted, order=example.order, command=example.command
    )
    for step in example.steps:
        if step.startswith(">"):
            assert heard(driver) == step[1:].strip(), step
        elif step.startswith("-"):
            driver.remove(f"{step[1:]}0")
        elif step == "stop":
            driver.engine.unsubscribe("s", name)
        elif step[0].isdigit():
            driver.wait(step)
        else:
            driver.publish(step)


def heard(driver: ManualDriver) -> str:
    """What came, in one line."""
    lines = []
    for line in driver.received():
        if line.startswith("group"):
            lines.append("begin" if line.startswith("group of") else "end")
        elif line.startswith("unsubscribed"):
            lines.append("unsubscribed")
        elif not line.startswith("goodbye"):
            lines.append(line.removeprefix("snapshot: "))
    return " ".join(lines)


@rule("interval-8")
def test_1_4_the_body_is_the_last_ones_timestamp_and_bookmark_the_first_ones() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,timestamp", counted=True)
    driver.publish_documents({"k": "a", "v": 1})
    driver.wait("300ms")
    driver.publish_documents({"k": "a", "v": 2})
    driver.wait("700ms")
    (batch,) = batches(driver.take())
    (row,) = batch.frames
    assert isinstance(row, Row)
    assert (row.payload, row.first, row.first_ms) == (b'{"k":"a","v":2}', 1, 0)


@rule("delta-1")
def test_1_5_merged_deltas_have_every_field_that_any_of_them_carried() -> None:
    """With its final value, even if that is the one before; untouched ones are absent."""
    driver = ManualDriver()
    driver.topic()
    rest = {"untouched": "x" * 40}
    driver.publish_documents({"k": "a", "bid": 1, "ask": 2, **rest})
    driver.subscribe("conflation=1s", command="sow_and_delta_subscribe")
    driver.take()
    driver.publish_documents(
        {"k": "a", "bid": 5, "ask": 2, **rest}, {"k": "a", "bid": 5, "ask": 3, **rest}
    )
    driver.publish_documents({"k": "a", "bid": 1, "ask": 3, **rest})
    driver.wait("1s")
    (batch,) = batches(driver.take())
    (row,) = batch.frames
    assert isinstance(row, Row)
    assert row.patch is not None
    assert msgspec.json.decode(row.patch) == {"k": "a", "bid": 1, "ask": 3}


@rule("delta-1")
def test_1_5_a_record_that_comes_back_into_focus_is_sent_in_full() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish_documents({"k": "a", "v": 5, "rest": "x" * 40})
    driver.subscribe("conflation=1s,oof", wanted="/v > 4", command="sow_and_delta_subscribe")
    driver.take()
    for value in (1, 6):
        driver.publish_documents({"k": "a", "v": value, "rest": "x" * 40})
        driver.wait("1s")
        rows = [row for batch in batches(driver.take()) for row in batch.frames]
    assert [getattr(row, "patch", None) for row in rows] == [None]
    assert msgspec.json.decode(rows[0].payload)["rest"] == "x" * 40


@rule("resume-8")
def test_1_5_a_replay_measures_the_interval_on_the_recorded_timeline() -> None:
    """One message for each key and recorded second, however fast it is replayed."""
    driver = ManualDriver()
    driver.topic(key="")
    for _ in range(5):
        driver.publish_documents({"k": "a"}, {"k": "b"}, {"k": "a"})
        driver.wait("600ms")
    driver.subscribe("bookmark=epoch,conflation=1s,conflation_key=[/k],receipt", command=None)
    assert [(messages, first) for _, messages, first in counts(driver.take())] == [
        *((2, 2), (4, 1)),
        *((2, 8), (4, 7)),
        *((1, 14), (2, 13)),
    ]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ("conflation=1s", ""),
        ("conflation_key=[/k]", "[/k]"),
        ("conflation=1s,conflation_key=[/g],oof", "[/k]"),
    ],
)
def test_1_8_what_is_documented_as_invalid_is_refused(options: str, key: str) -> None:
    driver = ManualDriver()
    driver.topic(key=key)
    with pytest.raises(OptionsInvalid):
        driver.subscribe(options)
