"""The Python client on the cases that it shares with gateway, JavaScript client and pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from tests.support.rules import rule
from tests.support.vectors import Vector, each_vector, vectors
from tidegate.clients.errors import FOREIGN, AnswerInvalid, GatewayProblem
from tidegate.clients.live.records import Records
from tidegate.clients.live.request import LiveRequest
from tidegate.clients.message import line_of
from tidegate.clients.order import in_order
from tidegate.clients.replica import RecordId, Replica, Row, patched
from tidegate.clients.retry import Backoff
from tidegate.clients.sse import Event
from tidegate.clients.stream import Places, Stream
from tidegate.keys.errors import PathInvalid

KEY = '["a"]'


def message(op: str, key: str, value: str) -> Event:
    """A row as it stands in an event, with texts of JSON for its key and its value."""
    return Event("message", f'{{"topic":"px","op":"{op}","key":{key},"value":{value}}}')


def live(keys: Iterable[str]) -> Records:
    """A live dict whose records have these keys, and these as values."""
    records = Records(LiveRequest("px"))
    for text in keys:
        records._take(message("publish", text, json.dumps(text)), pytest.fail)
    return records


@rule("key-1")
@each_vector("keys", "written")
def test_a_record_is_found_however_its_key_is_written(vector: Vector) -> None:
    known = {each["key"] for each in vectors("keys", "written")}
    known |= {each["text"] for each in vectors("keys", "records")}
    records = live(known)
    assert len(records) == len(known)
    assert records[tuple(json.loads(vector["text"]))] == vector["key"]


@pytest.mark.parametrize(
    "texts",
    [
        [each["text"] for each in vectors("keys", "records")],
        [each["key"] for each in vectors("keys", "groups")],
        ["null"],
    ],
    ids=["keys of records", "keys of groups", "a topic without key"],
)
def test_a_live_dict_finds_the_keys_that_it_lists(texts: list[str]) -> None:
    records = live(texts)
    assert [records[key] for key in records] == list(dict.fromkeys(texts))


@rule("view-1")
@each_vector("order", "orders")
def test_rows_are_in_the_gateways_order(vector: Vector) -> None:
    rows = [
        Row(RecordId("px", key), json.loads(key), "publish", json.loads(value))
        for key, value in vector["rows"]
    ]
    assert in_order(rows[::-1], vector["order"]) == rows


@each_vector("order", "refused")
def test_what_is_no_order_is_an_error(vector: Vector) -> None:
    with pytest.raises(PathInvalid):
        in_order([], vector["order"])


@each_vector("numbers", "numbers")
def test_a_number_is_read_and_written(vector: Vector) -> None:
    replica = Replica()
    [row] = replica.take(message("publish", KEY, vector["text"])).rows
    assert line_of(row.value).decode() == vector["python"]


@rule("key-3")
@each_vector("numbers", "refused")
def test_a_number_beyond_a_double_costs_its_record_alone(vector: Vector) -> None:
    replica = Replica()
    for text in ("1", vector["text"]):
        taken = replica.take(message("publish", KEY, text))
    replica.take(message("publish", '["b"]', "1"))
    assert [row.reason for row in taken.changes.removed] == ["unreadable"]
    assert [id_.key_text for id_ in replica.rows] == ['["b"]']


@each_vector("numbers", "not_json")
def test_what_is_no_number_of_json_is_an_error(vector: Vector) -> None:
    with pytest.raises(AnswerInvalid):
        Replica().take(message("publish", KEY, vector["text"]))


@rule("delta-5")
@each_vector("numbers", "comparisons")
def test_a_snapshot_that_says_the_same_is_no_change(vector: Vector) -> None:
    for held, repeated in ((vector["one"], vector["other"]), (vector["other"], vector["one"])):
        replica = Replica()
        replica.take(message("publish", KEY, held))
        replica.take(Event("group_begin", '{"topic":"px"}'))
        changes = replica.take(message("snapshot", KEY, repeated)).changes
        assert (len(changes) == 0) is vector["are_equal"]


@each_vector("deltas", "patches")
def test_a_patch_is_applied_and_neither_part_is_changed(vector: Vector) -> None:
    record, patch = vector["record"].encode(), vector["patch"].encode()
    before, change = msgspec.json.decode(record), msgspec.json.decode(patch)
    assert patched(before, change) == msgspec.json.decode(vector["result"])
    assert [before, change] == [msgspec.json.decode(record), msgspec.json.decode(patch)]


@rule("delta-5")
@each_vector("deltas", "changes")
def test_a_record_follows_what_is_published(vector: Vector) -> None:
    replica = Replica()
    replica.take(message("snapshot", KEY, vector["record"]))
    delta = vector["delta"]
    op, text = ("publish", vector["next"]) if delta is None else ("delta", delta)
    changes = replica.take(message(op, KEY, text)).changes
    assert [row.value for row in changes.changed] == [json.loads(vector["next"])]


@rule("resume-6")
@each_vector("resume", "streams")
def test_a_stream_comes_back_with_the_id_that_it_has_to_send(vector: Vector) -> None:
    sent = vector["sent"].encode()
    for pieces in ([sent], [bytes([byte]) for byte in sent]):
        stream = Stream(vector["before"], backoff=Backoff(chance=lambda least, most: least))
        stream.opened(200, {})
        for piece in pieces:
            list(stream.events(piece))
        assert stream.last_id == vector["id"]
        assert 1000 * stream.wait_s() == (vector["retry_ms"] or 0)


@each_vector("resume", "refusals")
def test_a_refusal_after_a_grant_is_an_outage_or_the_end(vector: Vector) -> None:
    status, code = vector["status"], vector["code"]
    problem = GatewayProblem(status, code or f"{FOREIGN}{status}", "No")
    stream = Stream()
    stream.opened(200, {})
    if vector["passes"]:
        stream.failed(problem, 0.0)
        assert stream.standing_error is problem
    else:
        with pytest.raises(GatewayProblem):
            stream.failed(problem, 0.0)


@each_vector("resume", "places")
def test_a_pattern_comes_back_with_the_place_of_each_topic(vector: Vector) -> None:
    places = Places()
    for name, id_, fields in vector["events"]:
        places.apply(Event(name, json.dumps(fields), id_))
    expected: dict[str, Any] = vector["bookmarks"]
    assert places.text == ",".join(f"{topic}={mark}" for topic, mark in expected.items())
