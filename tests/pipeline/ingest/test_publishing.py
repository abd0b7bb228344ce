"""Batches reach a real gateway once each, also if repeated, or if others send, too."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.pipeline.ingest.ingesting import definitions, journal
from tests.support.commands import serving_here
from tests.support.rules import rule
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.definitions.source import KeyFormat
from tidegate.pipeline.errors import KeyMismatch
from tidegate.pipeline.ingest import publishing
from tidegate.pipeline.ingest.connector import SourceBatch, SourceRecord
from tidegate.pipeline.ingest.definition import IngestDefinition
from tidegate.pipeline.ingest.payloads import PayloadForm, PayloadMapping
from tidegate.pipeline.ingest.publishing import DEAD_PAYLOAD_BYTES_MAX, TopicPublisher
from tidegate.pipeline.operations.status import BatchCount

pytestmark = pytest.mark.system
FILE = """
[ingest.a]
key = ["/k"]
source = {kind = "file", path = "in"}
sink = {topic = "t"}
"""


@pytest.fixture
def address() -> Iterator[str]:
    with serving_here() as serving:
        yield serving


@pytest.fixture
def gateway(address: str) -> Iterator[Gateway]:
    with Gateway(address, patience_s=0) as opened:
        yield opened


@pytest.fixture
def definition(tmp_path: Path, address: str) -> IngestDefinition:
    [read] = definitions(tmp_path, FILE, address)
    return read


def publisher(definition: IngestDefinition, gateway: Gateway, run: int = 1) -> TopicPublisher:
    made = TopicPublisher(definition, gateway, run)
    made.prepare()
    return made


def record(number: int | None, text: str = "") -> SourceRecord:
    payload = text or f'{{"k":{(number or 0) % 2},"n":{number}}}'
    return SourceRecord(payload.encode(), number, f"at {number}")


def batch(*numbers: int, partition: str = "") -> SourceBatch:
    return SourceBatch([record(number) for number in numbers], partition)


def count_of(published: int, repeated: int, refused: int, unmatched: int = 0) -> BatchCount:
    """The count of a batch of which each record is one of these."""
    messages = published + repeated + refused
    return BatchCount(messages, published, repeated, refused, unmatched)


def found(address: str) -> Sequence[int]:
    return [each["n"] for each in journal(address, "t")]


@rule("ingest-1")
def test_a_batch_that_is_read_again_is_published_once(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    first = publisher(definition, gateway)
    assert first.through("") is None
    assert first.publish(batch(3, 5, 9)) == count_of(3, 0, 0)
    assert first.publish(batch(9, 10)) == count_of(1, 1, 0)
    again = publisher(definition, gateway, 2)
    assert again.through("") == 10
    assert again.publish(batch(5, 9, 10, 12)) == count_of(1, 3, 0)
    assert found(address) == [3, 5, 9, 10, 12]


def test_partitions_have_numbers_of_their_own(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    first = publisher(definition, gateway)
    first.publish(batch(1, 2, partition="p"))
    first.publish(batch(1, 2, partition="q"))
    assert found(address) == [1, 2, 1, 2]
    again = publisher(definition, gateway, 2)
    assert [again.through(each) for each in "pqr"] == [2, 2, None]


@rule("ingest-6")
@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_topic_that_was_deleted_is_not_continued(
    address: str, gateway: Gateway, definition: IngestDefinition, is_made_again: bool
) -> None:
    """It lacks what was published: the next run asks for its numbers, and reads from before."""
    made = publisher(definition, gateway)
    made.publish(batch(1, 2))
    gateway.delete_topic("t")
    if is_made_again:
        gateway.put_topic("t", {"key": ["/k"]})
    with pytest.raises(GatewayProblem, match=r"has begun another epoch|topic-unknown"):
        made.publish(batch(3))
    assert journal(address, "t") == []
    again = publisher(definition, gateway, 2)
    assert again.through("") is None
    assert again.publish(batch(1, 2, 3)) == count_of(3, 0, 0)


@rule("ingest-2")
def test_an_earlier_run_is_fenced(gateway: Gateway, definition: IngestDefinition) -> None:
    earlier, later = publisher(definition, gateway), publisher(definition, gateway, 2)
    earlier.publish(batch(1))
    assert later.through("") == 1
    with pytest.raises(GatewayProblem, match="producer-fenced"):
        earlier.publish(batch(2))


@rule("ingest-2")
def test_a_start_goes_above_a_run_whose_clock_was_ahead(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    now_ms = 1_700_000_000_000
    ahead, behind = (publisher(definition, gateway, now_ms + more) for more in (3_600_000, 0))
    ahead.publish(batch(1))
    assert behind.through("") == 1
    behind.finish_start()
    assert behind.publish(batch(1, 2)) == count_of(1, 1, 0)
    with pytest.raises(GatewayProblem, match="producer-fenced"):
        ahead.publish(batch(3))
    later = publisher(definition, gateway, now_ms << 1)
    later.publish(batch(4, partition="p"))
    with pytest.raises(GatewayProblem, match="producer-fenced"):
        behind.through("p")  # no start any more: a later process has taken over
    assert found(address) == [1, 2, 4]


@rule("ingest-2")
@pytest.mark.parametrize("numbers", [[1, 2], [1, 2, 3, 4]])
def test_the_first_commit_of_a_dead_run_may_still_arrive(
    address: str, gateway: Gateway, definition: IngestDefinition, numbers: list[int]
) -> None:
    """Before it there is no number that could fence it."""
    dead, alive = publisher(definition, gateway), publisher(definition, gateway, 2)
    assert alive.through("") is None
    dead.publish(batch(1, 2, 3))
    outcome = alive.publish(batch(*numbers))
    assert found(address) == [1, 2, 3, *numbers[3:]]
    assert outcome.published == len(numbers[3:])


@rule("ingest-2")
def test_records_of_one_number_are_published_in_one_step(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    lines = [record(7, f'{{"k":{at},"n":{at}}}') for at in range(3)]
    publisher(definition, gateway).publish(SourceBatch([*lines, record(8)]))
    assert found(address) == [0, 1, 2, 8]
    again = publisher(definition, gateway, 2)
    assert again.publish(SourceBatch([*lines, record(8), record(9)])) == count_of(1, 4, 0)


def test_records_without_positions_are_numbered_above_those_of_earlier_runs(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    for run in (1, 2):
        made = publisher(definition, gateway, run)
        for at in range(2):
            made.publish(SourceBatch([record(None, f'{{"k":0,"n":{run * 10 + at}}}')]))
    assert found(address) == [10, 11, 20, 21]


def test_records_without_positions_are_numbered_above_all_that_an_earlier_run_has_reached(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    publisher(definition, gateway, 5).publish(batch(1 << 40))
    behind = publisher(definition, gateway, 4)
    assert behind.publish(SourceBatch([record(None, '{"k":0,"n":7}')])) == count_of(1, 0, 0)
    assert found(address) == [1 << 40, 7]


@rule("ingest-4")
def test_dead_letters_are_kept_before_the_batch_and_once(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    records = [record(1), record(2, "{"), record(3, "{}"), record(4)]
    for run in (1, 2):
        made = publisher(definition, gateway, run)
        outcome = made.publish(SourceBatch(records))
        assert outcome == (count_of(2, 0, 2) if run == 1 else count_of(0, 4, 0))
    made = publisher(definition, gateway, 3)
    assert made.publish(SourceBatch([record(5, "{")])) == count_of(0, 0, 1)
    again = publisher(definition, gateway, 4)
    assert again.through("") == 5
    assert again.publish(SourceBatch([record(5, "{")])) == count_of(0, 1, 0)
    dead = journal(address, "t.dead")
    assert [each["position"] for each in dead] == ["at 2", "at 3", "at 5"]
    assert dead[1]["reason"] == "the message has no field /k"


@rule("ingest-1")
@pytest.mark.parametrize("known", [0, 1])
def test_a_start_reads_after_dead_letters_at_the_end_of_a_batch(
    address: str, gateway: Gateway, definition: IngestDefinition, known: int
) -> None:
    first = publisher(definition, gateway)
    first.publish(batch(*range(known)))
    records = [record(5, "{"), record(6), record(7, "{"), record(8, "{")]
    assert first.publish(SourceBatch(records)) == count_of(1, 0, 3)
    assert publisher(definition, gateway, 2).through("") == 8
    assert found(address) == [*range(known), 6]


@rule("ingest-2")
def test_the_first_commit_has_the_number_of_its_record_also_before_a_dead_letter(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    """The commit of a run that died has that number, and is published once with any batch."""
    dead, alive = publisher(definition, gateway), publisher(definition, gateway, 2)
    assert alive.through("") is None
    dead.publish(batch(1))
    assert alive.publish(SourceBatch([record(1), record(2, "{")])) == count_of(1, 0, 1)
    assert found(address) == [1]


def test_the_payload_of_a_dead_letter_is_text_also_where_it_is_cut(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    long = "x" + "é" * DEAD_PAYLOAD_BYTES_MAX
    texts = [SourceRecord(long.encode(), 1, "at 1"), SourceRecord(b"x\xc3", 2, "at 2")]
    assert publisher(definition, gateway).publish(SourceBatch(texts)) == count_of(0, 0, 2)
    cut, broken = journal(address, "t.dead")
    assert (cut["payload"], cut["base64"]) == (long[: DEAD_PAYLOAD_BYTES_MAX // 2], False)
    assert (broken["payload"], broken["base64"]) == ("eMM=", True)


def test_a_dead_letter_of_control_characters_is_no_larger_than_the_gateway_takes(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    """In JSON each of them has six bytes."""
    control = b"\1" * (2 * DEAD_PAYLOAD_BYTES_MAX)
    odd = SourceRecord(control, 1, "at 1", control)
    assert publisher(definition, gateway).publish(SourceBatch([odd])) == count_of(0, 0, 1)
    [letter] = journal(address, "t.dead")
    assert (letter["base64"], letter["bytes"]) == (True, len(control))
    assert base64.b64decode(letter["payload"]) == control[:DEAD_PAYLOAD_BYTES_MAX]


@rule("ingest-4")
def test_a_run_that_dies_after_a_dead_letter_may_repeat_it_and_nothing_else(
    address: str, gateway: Gateway, definition: IngestDefinition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    publisher(definition, gateway).publish(batch(1))
    with monkeypatch.context() as patch:
        dying = publisher(definition, gateway, 2)
        assert dying.through("") == 1
        patch.setattr(Gateway, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            dying.publish(SourceBatch([record(2), record(3, "{")]))
    again = publisher(definition, gateway, 3)
    assert again.publish(SourceBatch([record(2), record(3, "{"), record(4, "{")])).published == 1
    assert found(address) == [1, 2]
    assert {each["position"] for each in journal(address, "t.dead")} == {"at 3", "at 4"}


def test_removals_that_find_no_record_are_counted(
    gateway: Gateway, definition: IngestDefinition
) -> None:
    text_keys = PayloadMapping(key_format=KeyFormat.TEXT)
    made = publisher(replace(definition, mapping=text_keys), gateway)
    made.publish(SourceBatch([record(1, '{"k":"700"}')]))
    tombstones = [SourceRecord(None, at, f"at {at}", b"700") for at in (2, 3)]
    assert made.publish(SourceBatch(tombstones)) == count_of(2, 0, 0, unmatched=1)
    # Debezium follows each removal with a tombstone of its own.
    debezium = PayloadMapping(PayloadForm.DEBEZIUM, key_format=KeyFormat.TEXT)
    made = publisher(replace(definition, mapping=debezium), gateway, 2)
    repeated = SourceRecord(None, 4, "at 4", b"700")
    assert made.publish(SourceBatch([repeated])) == count_of(1, 0, 0)


def test_equal_dead_letters_without_positions_are_all_kept(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    made = publisher(definition, gateway)
    for _ in range(2):
        assert made.publish(SourceBatch([record(None, "{")])) == count_of(0, 0, 1)
    assert len(journal(address, "t.dead")) == 2


def test_what_only_the_gateway_refuses_is_a_dead_letter_too(
    address: str, gateway: Gateway, definition: IngestDefinition, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "object", "properties": {"n": {"multipleOf": 3}}}
    gateway.put_topic("t", {"key": ["/k"], "schema": schema})
    numbers = range(1, 21)
    outcome = publisher(definition, gateway).publish(batch(*numbers))
    assert found(address) == [3, 6, 9, 12, 15, 18]
    assert outcome == count_of(6, 0, 14)
    dead = journal(address, "t.dead")
    assert [each["position"] for each in dead] == [f"at {at}" for at in numbers if at % 3]
    assert "schema-violation" in dead[0]["reason"]


def test_of_plain_messages_the_gateway_is_the_first_to_check(
    address: str, gateway: Gateway, definition: IngestDefinition, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = []
    stage = gateway.stage

    def counted(topic: str, lines: list[bytes], *given: Any, **named: Any) -> None:
        bodies.append(lines)
        stage(topic, lines, *given, **named)

    monkeypatch.setattr(gateway, "stage", counted)
    first = publisher(definition, gateway)
    first.publish(batch(1))
    bodies.clear()
    texts = ('{"k":0,"n":2}', '{"k":', '{"n":4}', '{"k":1} {"k":2}', '{"k":1e999}', '{"k":0,"n":7}')
    records = [record(number, text) for number, text in enumerate(texts, 2)]
    assert first.publish(SourceBatch(records)) == count_of(2, 0, 4)
    assert found(address) == [1, 2, 7]
    assert [each["position"] for each in journal(address, "t.dead")] == [
        f"at {n}" for n in range(3, 7)
    ]
    assert len(bodies) == 2  # refused, and without what is no message


@pytest.mark.parametrize(
    "text", ['{"k":1},"key":[7],"reason":"deleted"', '{"k":"a\nb"}', '{"k":1}\n{"k":2}', "", " "]
)
def test_a_payload_that_could_be_taken_for_more_is_checked_before(
    address: str, gateway: Gateway, definition: IngestDefinition, text: str
) -> None:
    text_keys = PayloadMapping(key_format=KeyFormat.TEXT)
    made = publisher(replace(definition, mapping=text_keys), gateway)
    made.publish(SourceBatch([record(1, '{"k":"7","n":1}')]))
    odd = SourceRecord(text.encode(), 2, "at 2")
    removal = SourceRecord(None, 3, "at 3", b"8")
    assert made.publish(SourceBatch([odd, removal])) == count_of(1, 0, 1, unmatched=1)
    assert [each["position"] for each in journal(address, "t.dead")] == ["at 2"]
    assert made.publish(SourceBatch([replace(odd, number=4)])) == count_of(0, 0, 1)


def test_a_large_batch_is_staged_in_parts_and_published_in_one_step(
    address: str, gateway: Gateway, definition: IngestDefinition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "STAGE_MESSAGES_MAX", 3)
    made = publisher(definition, gateway)
    made.publish(batch(0))
    before = gateway.topic("t")["journal"]["last"]
    assert made.publish(batch(*range(1, 11))) == count_of(10, 0, 0)
    assert found(address) == list(range(11))
    times = {msgspec.json.decode(line)["timestamp"] for line in gateway.messages("t", before)}
    assert len(times) == 1


def test_the_topic_has_the_key_of_the_definition_or_gives_its_own(
    gateway: Gateway, definition: IngestDefinition
) -> None:
    gateway.put_topic("t", {"key": ["/other"]})
    with pytest.raises(KeyMismatch, match=r"topic t exists with key \['/other'\]"):
        publisher(definition, gateway)
    made = publisher(replace(definition, spec=None), gateway)
    assert made.publish(batch(1)) == count_of(0, 0, 1)  # it has no field /other


def test_a_topic_without_key_is_made_where_the_definition_names_none(
    address: str, gateway: Gateway, definition: IngestDefinition
) -> None:
    made = publisher(replace(definition, spec=None), gateway)
    made.publish(SourceBatch([record(1, "[1]")]))
    assert journal(address, "t") == [[1]]
    assert not gateway.topic("t").get("key")
