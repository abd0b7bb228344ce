"""A client's copy of the records, and the patches that change it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate.clients.errors import AnswerInvalid
from tidegate.clients.replica import Change, Replica, patched
from tidegate.clients.sse import Event


def row(op: str, value: object, key: object = ("a",), topic: str = "px") -> dict[str, Any]:
    return {"topic": topic, "op": op, "key": key, "bookmark": "e-1", "value": value}


def taken(replica: Replica, *rows: dict[str, Any], name: str = "message") -> list[Change]:
    document = rows[0] if len(rows) == 1 else {"topic": "px", "rows": rows}
    return replica.take(Event(name, json.dumps(document)))


def test_the_newest_value_of_each_key_is_there() -> None:
    replica = Replica()
    taken(replica, row("snapshot", {"v": 1}), row("publish", {"v": 2}, ["b"]))
    taken(replica, row("publish", {"v": 3}))
    assert dict(replica.values) == {("px", '["a"]'): {"v": 3}, ("px", '["b"]'): {"v": 2}}


def test_a_delta_is_applied() -> None:
    replica = Replica()
    taken(replica, row("publish", {"v": 1, "w": {"x": 1, "y": 2}}))
    [change] = taken(replica, row("delta", {"v": None, "w": {"x": 5}}))
    assert change == Change("px", ["a"], "delta", {"w": {"x": 5, "y": 2}})


def test_what_left_is_forgotten() -> None:
    replica = Replica()
    taken(replica, row("publish", 1))
    assert taken(replica, row("oof", 1)) == [Change("px", ["a"], "oof", None)]
    assert not replica.values


def test_a_snapshot_replaces_what_was_there_of_its_topic() -> None:
    replica = Replica()
    taken(replica, row("publish", 1), row("publish", 2, topic="other"))
    replica.take(Event("group_begin", '{"sub":"s1","topic":"px","rows":0}'))
    assert list(replica.values) == [("other", '["a"]')]


def test_a_topic_that_ends_takes_its_records_along() -> None:
    replica = Replica()
    taken(replica, row("publish", 1))
    replica.take(Event("unsubscribed", '{"sub":"s1","topic":"px","reason":"REMOVED"}'))
    assert not replica.values


def test_a_topic_without_key_has_one_record() -> None:
    replica = Replica()
    taken(replica, row("publish", 1, None), row("publish", 2, None))
    assert dict(replica.values) == {("px", "null"): 2}


@pytest.mark.parametrize("text", ["[]", "1", "{}", '{"rows":[{"topic":"px"}]}', "no"])
def test_what_is_no_envelope_is_refused(text: str) -> None:
    with pytest.raises(AnswerInvalid):
        Replica().take(Event("message", text))


def test_a_delta_without_its_record_is_refused() -> None:
    with pytest.raises(AnswerInvalid):
        taken(Replica(), row("delta", {}))


def test_other_events_change_nothing() -> None:
    assert Replica().take(Event("late", '{"sub":"s1","age_ms":1,"cause":"client"}')) == []


# The table of RFC 7396, appendix A.
RFC = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]


@pytest.mark.parametrize(("value", "patch", "result"), RFC)
def test_as_the_rfc_says(value: str, patch: str, result: str) -> None:
    assert patched(json.loads(value), json.loads(patch)) == json.loads(result)


def test_nothing_is_changed_in_place() -> None:
    value = {"a": {"b": 1}, "c": [1]}
    assert patched(value, {"a": {"b": None}}) == {"a": {}, "c": [1]}
    assert value == {"a": {"b": 1}, "c": [1]}
