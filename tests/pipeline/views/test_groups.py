"""Views are compared with a recomputation over all records, and with the engine's own groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.pipeline.views.tasks import Message, SentRow, Tasks, view
from tests.support.manual_driver import ManualDriver, batches
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.conflation.frame import Frame, Tombstone
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.columns.conflation import Conflation
from tidegate.pipeline.columns.rows import PUBLISHED, SENT, arrow_schema, shard_of
from tidegate.pipeline.intervals import Interval, Pace
from tidegate.pipeline.views.groups import Records, View, newest, newest_records

COLUMNS = (
    "[/g,/v AS /newest,/v + 1 AS /more,COUNT(/v) AS /count,COUNT_DISTINCT(/v) AS /distinct,"
    "SUM(/v) AS /sum,AVG(/v) AS /avg,MIN(/v) AS /low,MAX(/v) AS /high,FIRST(/v) AS /first,"
    "LAST(/v) AS /last,STDDEV(/v) AS /spread,STDDEV_POP(/v) AS /all.spread,SUM(/v * 2) AS /twice]"
).replace("/all.spread", "/all/spread")
VALUES = (
    '1', '1.0', '1e0', '-3', '0.1', '0.25', '1e300', '123456789012345678901', '9007199254740993',
    'null', '""', '"x"', '"NaN"', '"2.5"', '"y"', 'true', '{"a":1}', '[7,8]', '1e999',
)  # fmt: skip
GROUPS = ('"X"', '"Y"', "1", "1.0", "null", '["z"]')
TOTALS = "[SUM(/v) AS /v,COUNT(/k) AS /n]"

message = st.builds(
    lambda record, group, value: Message(f'["{record}"]', said(record, group, value)),
    st.sampled_from("abcdef"),
    st.sampled_from((*GROUPS, "")),
    st.sampled_from((*VALUES, "")),
)
removal = st.sampled_from("abcdef").map(lambda record: Message(f'["{record}"]', None))
histories = st.lists(st.lists(st.one_of(message, message, removal), max_size=12), max_size=5)


def said(record: str, group: str, value: str) -> bytes:
    """A message; a field without text is missing."""
    fields = [("k", f'"{record}"'), ("g", group), ("v", value)]
    return b"{%s}" % ",".join(f'"{name}":{text}' for name, text in fields if text).encode()


def recomputed(records: dict[str, bytes], asked: View) -> dict[str, bytes]:
    """The row of each group, from all records in the order of their last change."""
    matches = asked.filter.matcher(asked.topic) if asked.filter else lambda body, key: True
    groups: dict[str, list[bytes]] = {}
    for record, body in records.items():
        if matches(body, record):
            groups.setdefault(asked.projection.group_key(body), []).append(body)
    return {group: asked.projection.row(bodies) for group, bodies in groups.items()}


def can_be_a_key(group: str) -> bool:
    return group not in ("[null]", '[["z"]]')


def applied(records: dict[str, bytes], messages: Sequence[Message]) -> None:
    for record, body, _ in messages:
        records.pop(record, None)
        if body is not None:
            records[record] = body


@rule("view-9", "view-10")
@pytest.mark.parametrize("wanted", ["", "/v > 0 OR /v IS NULL"])
@pytest.mark.parametrize("shards", [1, 3])
@examples(8)
@given(histories)
def test_a_view_is_what_its_records_come_to(
    wanted: str, shards: int, history: list[list[Message]]
) -> None:
    asked = view(COLUMNS, wanted=wanted)
    tasks, records, shown = Tasks(asked, shards), dict[str, bytes](), dict[str, bytes]()
    for messages in history:
        applied(records, messages)
        for group, row in tasks.batch(messages).items():
            if row.value is None:
                del shown[group]
            else:
                shown[group] = row.value
        now = recomputed(records, asked)
        assert shown == {group: row for group, row in now.items() if can_be_a_key(group)}
        assert set(tasks.refused) <= set(now.values()) - set(shown.values())


@rule("view-2", "view-9")
@pytest.mark.parametrize("wanted", ["", "/v > 0"])
@examples(8)
@given(histories)
@example([[Message('["a"]', said("a", '"X"', "1"))], [Message('["a"]', None)]])
def test_the_engine_sends_the_same_rows(wanted: str, history: list[list[Message]]) -> None:
    asked = view(COLUMNS, wanted=wanted)
    tasks, driver, position = Tasks(asked, 2), ManualDriver(), 0
    driver.topic(key="[/k]")
    driver.session(messages_max=1 << 30)
    options = f"conflation=40ms,oof,projection={COLUMNS},grouping=[/g]"
    driver.subscribe(options, wanted=wanted, command="sow_and_subscribe")
    driver.take()
    records: dict[str, bytes] = {}
    for messages in history:
        for record, body, _ in messages:
            position += 1
            kind = Frame if body is not None else Tombstone
            frame = kind(position, body or b"", record, timestamp_ms=position)
            driver.engine.publish("px", [frame], driver.now)
        driver.wait("40ms")
        frames = [row for each in batches(driver.take()) for row in each.frames]
        frames = [row for row in frames if can_be_a_key(row.key)]
        sent = {row.key: None if row.removed else row.payload for row in frames}
        why = {row.key: str(row.reason) for row in frames if isinstance(row, Tombstone)}
        rows = tasks.batch(messages)
        values = {group: row.value for group, row in rows.items()}
        applied(records, messages)
        if len({message.key for message in messages}) == len(messages):
            assert sent == values
            assert why == {group: row.removed for group, row in rows.items() if row.removed}
        # The engine also sees groups to which records came, and from which they went on.
        now = recomputed(records, asked)
        assert sent == {group: now.get(group) for group in sent.keys() - rows.keys()} | values


def one(record: str, group: str, value: int) -> Message:
    return Message(f'["{record}"]', b'{"k":"%s","g":"%s","v":%d}' % (
        record.encode(), group.encode(), value,
    ))  # fmt: skip


@rule("view-9", "view-11")
def test_only_changed_groups_have_a_row() -> None:
    tasks = Tasks(view(TOTALS, wanted="/v < 100"), 4)
    assert tasks.batch([one("a", "X", 1), one("b", "Y", 2), one("a", "X", 3)]) == {
        '["X"]': SentRow(b'{"g":"X","v":3,"n":1}', None, 2),
        '["Y"]': SentRow(b'{"g":"Y","v":2,"n":1}', None, 1),
    }
    assert tasks.batch([]) == {}
    # A record that moves: the group that it left gets a row, its messages count where it is now.
    assert tasks.batch([one("a", "Y", 5)]) == {
        '["X"]': SentRow(None, "match", 0),
        '["Y"]': SentRow(b'{"g":"Y","v":7,"n":2}', None, 1),
    }
    # One that matches no more, and one that is removed; a removal of nobody is no newest_records.
    assert tasks.batch([one("a", "Y", 100), Message('["c"]', None)]) == {
        '["Y"]': SentRow(b'{"g":"Y","v":2,"n":1}', None, 1)
    }
    assert tasks.batch([Message('["b"]', None)]) == {'["Y"]': SentRow(None, "deleted", 1)}
    assert tasks.batch([Message('["b"]', None)]) == {}


@rule("view-9")
def test_a_group_that_came_and_went_within_a_batch_is_not_seen() -> None:
    tasks = Tasks(view(TOTALS), 2)
    found = tasks.batch([one("a", "X", 1), one("a", "Y", 1), Message('["a"]', None)])
    assert found == {}


@rule("view-10")
def test_a_group_without_a_key_is_refused() -> None:
    tasks = Tasks(view(TOTALS), 2)
    assert tasks.batch([Message("a", b'{"v":1}'), Message("b", b'{"g":[1],"v":2}')]) == {}
    assert sorted(tasks.refused) == [b'{"g":[1],"v":2,"n":0}', b'{"v":1,"n":0}']
    assert tasks.batch([Message("a", None), Message("b", None)]) == {}
    assert tasks.refused == []


def row(record: str, place: tuple[str, int, int], first_ms: int | None) -> dict[str, Any]:
    file, block, position = place
    body = b"" if position == 9 else b"%d" % position
    return {
        "key": record, "file": file, "block": block, "position": position, "value": body,
        "messages": position, "first_ms": first_ms,
    }  # fmt: skip


def test_the_newest_is_by_file_block_and_position() -> None:
    rows = [
        row("a", ("2", 0, 1), None), row("b", ("1", 5, 2), 30), row("a", ("1", 9, 9), 20),
        row("b", ("1", 10, 1), 20), row("c", ("0", 0, 3), None),
    ]  # fmt: skip
    found = newest(pa.Table.from_pylist(rows, schema=arrow_schema(SENT))).to_pylist()
    newest_of = [(each["key"], each["value"], each["messages"], each["first_ms"]) for each in found]
    assert newest_of == [("c", b"3", 3, None), ("b", b"1", 3, 20), ("a", b"1", 10, 20)]


def test_of_nothing_there_is_nothing() -> None:
    assert newest(arrow_schema(SENT).empty_table()).num_rows == 0


def published(*newest_of: tuple[str | None, bytes | None]) -> pa.RecordBatch:
    rows = [
        {"file": "f", "block": 0, "key": key, "body": body, "time_ms": 10 - at}
        for at, (key, body) in enumerate(newest_of)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(PUBLISHED))


def newest_of(spec: KeySpec, *batches: pa.RecordBatch) -> list[tuple[Any, ...]]:
    asked = Conflation(spec, Interval(1, Pace.BATCH), sets_aside=True, line_bytes_max=99)
    names = ("key", "position", "value", "messages", "first_ms", "removed", "refused")
    found = [row for rows in newest_records(iter(batches), asked) for row in rows.to_pylist()]
    return [tuple(row[name] for name in names) for row in found]


@rule("view-10")
def test_a_task_gives_the_newest_of_each_record_and_removals_and_what_is_none() -> None:
    rows = published(
        (None, b'{"k":1}'), (None, b'{"k":2}'), ("[1]", None), (None, b" "), (None, b'{"k":1.0}'),
        ("[2]", None),
    )  # fmt: skip
    found = newest_of(KeySpec.of(["/k"]), rows, published((None, b'{"k":null}')))
    assert found == [
        ("[1]", 5, b'{"k":1.0}', 3, 6, None, None),
        ("[2]", 6, None, 2, 5, "deleted", None),
        (None, 7, b'{"k":null}', 1, 10, None, found[-1][-1]),
    ]
    assert found[-1][-1].startswith("key-invalid: ")


@rule("view-10")
def test_without_fields_of_a_key_a_message_has_its_own() -> None:
    found = newest_of(
        KeySpec(), published(('["a"]', b"{}"), ('["a"]', b"[]")), published((None, b"{}"))
    )
    assert found == [
        ('["a"]', 2, b"[]", 2, 9, None, None),
        (None, 3, b"{}", 1, 10, None, "key-missing: the message does not contain its key"),
    ]


ASKED = view("[SUM(/v) AS /v]")


def changes(*newest_of: tuple[str, bytes | None]) -> pa.Table:
    rows = [
        {"key": record, "file": "", "block": 0, "position": at, "value": body, "messages": 1}
        | {"removed": None if body else "deleted"}
        for at, (record, body) in enumerate(newest_of)
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(SENT))


@rule("view-9", "view-11")
def test_only_touched_groups_have_partials() -> None:
    records = Records(ASKED, 1, 4, None)
    records.change(changes(("a", b'{"g":"X","v":1}'), ("b", b'{"g":"Y","v":2}')), 0)
    again = Records(ASKED, 1, 4, records.table)
    found = again.change(changes(("a", b'{"g":"Z","v":1}')), 1).to_pylist()
    newest_of = [(part["key"], part["records"], part["messages"], part["home"]) for part in found]
    assert newest_of == [
        ('["X"]', 0, 0, shard_of('["X"]', 4)),
        ('["Z"]', 1, 1, shard_of('["Z"]', 4)),
    ]
    assert {part["shard"] for part in found} == {1}
    assert again.change(changes(), 2).num_rows == 0


@rule("view-11")
def test_what_is_kept_of_a_record_are_the_cells_that_its_view_asks_for() -> None:
    records = Records(ASKED, 0, 1, None)
    records.change(changes(("a", b'{"g":"X","v":1.50,"long":"text"}')), 7)
    [kept] = records.table.to_pylist()
    place: dict[str, Any] = {"batch": 7, "file": "", "block": 0, "position": 0}
    assert kept == {"key": "a", "group": '["X"]', **place, "cell_0": b'"X"', "cell_1": b"1.50"}
