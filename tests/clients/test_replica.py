"""A client's copy of the records, and the patches that change it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate.clients.errors import AnswerInvalid
from tidegate.clients.replica import Changes, Replica, Row, Taken
from tidegate.clients.sse import Event


def row(op: str, value: object, key: object = ("a",), topic: str = "px") -> dict[str, Any]:
    return {"topic": topic, "op": op, "key": key, "bookmark": "e-1", "value": value}


def taken(replica: Replica, *rows: dict[str, Any], name: str = "message") -> Taken:
    document = rows[0] if len(rows) == 1 else {"topic": "px", "rows": rows}
    return replica.take(Event(name, json.dumps(document)))


def snapshot(replica: Replica, *rows: dict[str, Any], topic: str = "px") -> Changes:
    """What a snapshot changes, from its beginning to its end."""
    changes = Changes()
    group = json.dumps({"sub": "s1", "topic": topic, "rows": len(rows)})
    batch = json.dumps({"topic": topic, "rows": rows})
    for name, text in (("group_begin", group), ("message", batch), ("group_end", group)):
        changes.join(replica.take(Event(name, text)).changes)
    return changes


def values(rows: list[Row]) -> list[Any]:
    return [each.value for each in rows]


def test_the_newest_value_of_each_key_is_there() -> None:
    replica = Replica()
    taken(replica, row("snapshot", {"v": 1}), row("publish", {"v": 2}, ["b"]))
    taken(replica, row("publish", {"v": 3}))
    assert replica.values == {("px", '["a"]'): {"v": 3}, ("px", '["b"]'): {"v": 2}}


def test_what_a_pattern_has_lost_while_there_was_no_stream_is_missed() -> None:
    replica = Replica()
    mine = [row("publish", {"v": 2}, ["a"], "px.b"), row("publish", {"v": 3}, ["b"], "px.b")]
    taken(replica, row("publish", {"v": 1}, topic="px.a"), *mine)
    ended = taken(replica, {"subscriptions": []}, name="hello").changes
    assert len(ended) == 0  # an end of all of it has an event
    begun = taken(replica, {"subscriptions": [{"topic": "px.a"}, {"topic": "px.c"}]}, name="hello")
    assert [(each.topic, each.reason) for each in begun.changes.removed] == [("px.b", "missed")] * 2
    assert list(replica.rows) == [("px.a", '["a"]')]


def test_a_delta_is_applied() -> None:
    replica = Replica()
    before = {"v": 1, "w": {"x": 1, "y": 2}}
    taken(replica, row("publish", before))
    [change] = taken(replica, row("delta", {"v": None, "w": {"x": 5}})).rows
    after = {"w": {"x": 5, "y": 2}}
    assert change == Row(("px", '["a"]'), ["a"], "delta", after, before)  # type: ignore[arg-type]  # a RecordId is a tuple
    assert before == {"v": 1, "w": {"x": 1, "y": 2}}


def test_a_row_has_what_it_replaced_and_a_removal_its_reason() -> None:
    replica = Replica()
    changes = taken(replica, row("publish", 1)).changes
    assert (values(changes.added), values(changes.changed)) == ([1], [])
    changes = taken(replica, row("publish", 2)).changes
    assert [(each.value, each.previous) for each in changes.changed] == [(2, 1)]
    changes = taken(replica, {**row("oof", 2), "reason": "expired"}).changes
    assert [(each.previous, each.reason) for each in changes.removed] == [(2, "expired")]
    assert not replica.rows
    # The gateway may report keys that were never held here.
    assert not taken(replica, row("oof", 2)).changes


def test_a_snapshot_replaces_what_was_there_of_its_topic() -> None:
    replica = Replica()
    taken(replica, row("publish", 1), row("publish", 2, topic="other"))
    removed = snapshot(replica).removed
    assert [(each.topic, each.previous, each.reason) for each in removed] == [("px", 1, "missed")]
    assert list(replica.values) == [("other", '["a"]')]


def test_a_snapshot_after_a_loss_changes_only_what_differs() -> None:
    replica = Replica()
    taken(replica, *(row("publish", {"v": 1}, [key]) for key in "abc"))
    changes = snapshot(
        replica, row("snapshot", {"v": 1}, ["a"]), row("snapshot", {"v": True}, ["b"]),
        row("snapshot", {"v": 4}, ["d"]),
    )  # fmt: skip
    assert [each.key for each in changes.added] == [["d"]]
    assert [(each.key, each.value, each.previous) for each in changes.changed] == [
        (["b"], {"v": True}, {"v": 1})
    ]
    assert [each.key for each in changes.removed] == [["c"]]


def test_a_snapshot_that_was_cut_off_begins_again() -> None:
    replica = Replica()
    taken(replica, row("publish", 1), row("publish", 2, ["b"]))
    replica.take(Event("group_begin", '{"sub":"s1","topic":"px","rows":2}'))
    taken(replica, row("snapshot", 1))
    changes = snapshot(replica, row("snapshot", 2, ["b"]))
    assert [each.key for each in changes.removed] == [["a"]]
    assert values(list(replica.rows.values())) == [2]


def test_a_topic_that_ends_takes_its_records_along() -> None:
    replica = Replica()
    taken(replica, row("publish", 1))
    ended = replica.take(Event("unsubscribed", '{"sub":"s1","topic":"px","reason":"REMOVED"}'))
    assert [each.reason for each in ended.changes.removed] == ["deleted"]
    assert not replica.rows


def test_a_topic_without_key_has_one_record() -> None:
    replica = Replica()
    taken(replica, row("publish", 1, None), row("publish", 2, None))
    assert replica.values == {("px", "null"): 2}


def test_keys_that_python_finds_equal_are_different_records() -> None:
    replica = Replica()
    taken(replica, row("publish", 1, [1]), row("publish", 2, [True]), row("publish", 3, ["1"]))
    taken(replica, row("publish", 4, [9007199254740993]), row("publish", 5, [9007199254740992]))
    assert list(replica.values.values()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("text", ["[]", "1", "{}", '{"rows":[{"topic":"px"}]}', "no"])
def test_what_is_no_envelope_is_refused(text: str) -> None:
    with pytest.raises(AnswerInvalid):
        Replica().take(Event("message", text))


def test_a_delta_without_its_record_is_missed_and_the_others_are_applied() -> None:
    replica = Replica()
    found = taken(replica, row("delta", {}), row("publish", 1, ["b"]))
    assert (found.is_whole, values(found.rows)) == (False, [1])


def test_other_events_change_nothing() -> None:
    assert not Replica().take(Event("late", '{"sub":"s1","age_ms":1,"cause":"client"}')).changes


def joined(*steps: dict[str, Any], held: object = None) -> Changes:
    """What several flushes change, as one."""
    replica, whole = Replica(), Changes()
    if held is not None:
        taken(replica, row("publish", held))
    for step in steps:
        whole.join(taken(replica, step).changes)
    return whole


def test_changes_that_are_joined_have_their_net_effect() -> None:
    assert not joined(row("publish", 1), row("oof", 1))
    came = joined(row("publish", 1), row("publish", 2))
    assert (values(came.added), came.changed) == ([2], [])
    assert came.added[0].previous is None
    moved = joined(row("publish", 1), row("publish", 2), held=0)
    assert [(each.value, each.previous) for each in moved.changed] == [(2, 0)]
    left = joined(row("publish", 1), row("oof", 1), held=0)
    assert ([each.previous for each in left.removed], len(left)) == ([0], 1)
    returned = joined(row("oof", 0), row("publish", 5), held=0)
    assert [(each.value, each.previous) for each in returned.changed] == [(5, 0)]


def raw(*rows: str) -> Event:
    """A batch whose rows are JSON texts."""
    return Event("message", f'{{"sub":"s1","topic":"px","rows":[{",".join(rows)}]}}')


def text_of(key: str, value: str, op: str = "publish") -> str:
    return f'{{"topic":"px","op":"{op}","key":["{key}"],"value":{value}}}'


BEYOND = '{"v":1e400}'


def test_a_row_that_cannot_be_read_costs_its_record_and_no_other() -> None:
    replica = Replica()
    taken(replica, row("publish", {"v": 1}), row("publish", {"v": 1}, ["b"]))
    found = replica.take(raw(text_of("a", BEYOND), text_of("b", '{"v":2}')))
    assert found.is_whole
    assert [each.key for each in found.rows] == [["b"]]
    assert [(each.key, each.reason, each.previous) for each in found.changes.removed] == [
        (["a"], "unreadable", {"v": 1})
    ]
    assert found.unreadable == ['record ["a"] of px cannot be read: Number out of range']
    assert replica.values == {("px", '["b"]'): {"v": 2}}


def test_a_record_is_reported_once_until_it_can_be_read_again() -> None:
    replica = Replica()
    assert len(replica.take(raw(text_of("a", "9" * 4_301))).unreadable) == 1
    again = replica.take(Event("message", text_of("a", BEYOND)))
    assert (list(again.unreadable), len(again.changes)) == ([], 0)
    # A delta of it builds on what is not known: only a snapshot can tell.
    delta = replica.take(raw(text_of("a", '{"w":1}', "delta")))
    assert (delta.rows, delta.is_whole) == ([], False)
    assert values(replica.take(raw(text_of("a", '{"v":3}'))).changes.added) == [{"v": 3}]
    unreadable = replica.take(raw(text_of("a", BEYOND, "delta")))
    assert (len(unreadable.unreadable), replica.values) == (1, {})
    removed = replica.take(raw(text_of("a", BEYOND, "oof")))
    assert [(each.op, each.value) for each in removed.rows] == [("oof", None)]
    assert not replica.take(raw(text_of("a", "{}", "delta"))).is_whole


def test_a_key_that_cannot_be_read_costs_its_record_and_no_other() -> None:
    replica = Replica()
    far = '{"topic":"px","op":"%s","key":[%s],"value":{"v":1}}'
    for key in ("1e400", "-1e400", "1e400"):
        found = replica.take(raw(far % ("publish", key), text_of("b", "2")))
        assert [each.key for each in found.rows] == [["b"]]
    assert not found.unreadable  # reported once
    assert not replica.take(raw(far % ("oof", "1e400"))).changes.removed
    assert replica.values == {("px", '["b"]'): 2}


def test_a_removal_keeps_its_bookmark_where_the_last_value_cannot_be_read() -> None:
    replica = Replica()
    text = '{"bookmark":"e-7","topic":"px","op":"oof","key":["a"],"value":1e400,"reason":"deleted"}'
    [removed] = replica.take(raw(text)).rows
    assert (removed.reason, removed.envelope["bookmark"]) == ("deleted", "e-7")


def test_a_snapshot_leaves_out_what_cannot_be_read_and_goes_on() -> None:
    replica = Replica()
    taken(replica, row("publish", 1), row("publish", 2, ["b"]))
    group = '{"sub":"s1","topic":"px","rows":2}'
    replica.take(Event("group_begin", group))
    middle = replica.take(raw(text_of("a", "[1e999]", "snapshot"), text_of("b", "2", "snapshot")))
    end = replica.take(Event("group_end", group))
    assert [each.reason for each in middle.changes.removed] == ["unreadable"]
    assert (len(end.changes), replica.values) == (0, {("px", '["b"]'): 2})


def test_what_is_no_envelope_at_all_ends_it() -> None:
    for text in ("7", "{", '{"rows":[7e999]}', '{"rows":[{"topic":"px","key":1e999}]}'):
        with pytest.raises(AnswerInvalid):
            Replica().take(Event("message", text))
