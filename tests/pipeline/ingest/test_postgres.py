"""Tables of PostgreSQL: the rows that are there, and what transactions change, each once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.pipeline.ingest.ingesting import (
    begins,
    connector_of,
    eventually,
    ingesting,
    journal,
    read_until,
)
from tests.support.commands import serving_here
from tests.support.external.postgres import PostgresServer, postgres_server
from tests.support.rules import rule
from tidegate.pipeline.errors import (
    EndpointRefused,
    EndpointUnavailable,
    PipelineError,
    SourceLost,
)
from tidegate.pipeline.ingest.connector import Connector, SourceBatch, SourceRecord
from tidegate.pipeline.ingest.sources.postgres import FIRST_LSN, lsn_of
from tidegate.pipeline.ingest.sources.postgres_changes import lsn_text

pytestmark = [pytest.mark.system, pytest.mark.nightly]
SLOTS = (f"slot_{at}" for at in itertools.count())


@pytest.fixture(scope="module")
def running() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def server(running: PostgresServer) -> PostgresServer:
    """A server with an empty table `orders`, which is published."""
    running.execute(
        "DROP PUBLICATION IF EXISTS board",
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id int PRIMARY KEY, state text)",
        "CREATE PUBLICATION board FOR TABLE orders",
    )
    return running


@pytest.fixture
def slot(running: PostgresServer) -> Iterator[str]:
    """The name of a replication slot, which is dropped after the test."""
    name = next(SLOTS)
    yield name
    drop = f"pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name='{name}'"
    eventually(lambda: is_active(running, name), False)
    running.execute(f"SELECT {drop}")


def is_active(server: PostgresServer, slot: str) -> bool:
    found = server.query(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'")
    return bool(found and found[0][0])


def table(server: PostgresServer, slot: str, **more: object) -> dict[str, object]:
    fields = {"kind": "postgres", "address": server.address(), "publication": "board"}
    return {**fields, "slot": slot, **more}


def opened(server: PostgresServer, slot: str, through: Any = None, **more: object) -> Connector:
    connector = connector_of(table(server, slot, **more))
    try:
        connector.open(lambda partition: through)
    except PipelineError:
        connector.close()
        raise
    return connector


def records(batches: list[SourceBatch]) -> list[SourceRecord]:
    return [each for batch in batches for each in batch.records]


def said(batches: list[SourceBatch]) -> list[Any]:
    """Rows as they are, and the keys of those that were removed in a list."""
    return [
        [msgspec.json.decode(each.broker_key or b"null")]
        if each.payload is None
        else msgspec.json.decode(each.payload)
        for each in records(batches)
    ]


def test_positions_in_the_log_are_numbers_and_back() -> None:
    for text in ("0/0", "0/16B3748", "1A/FFFFFFFF", "7FFFFFFF/0"):
        assert lsn_text(lsn_of(text)) == text


def test_rows_that_are_there_come_first_and_changes_after_them(
    server: PostgresServer, slot: str
) -> None:
    server.execute("INSERT INTO orders VALUES (1, 'new'), (2, NULL)")
    connector = opened(server, slot)
    server.execute("INSERT INTO orders VALUES (3, 'late')")
    [rows] = read_until(connector, 2)
    assert said([rows]) == [{"id": 1, "state": "new"}, {"id": 2, "state": None}]
    assert [(each.number, each.channel) for each in rows.records] == [(1, "public.orders")] * 2
    server.execute(
        "UPDATE orders SET state = 'done' WHERE id = 1",
        "UPDATE orders SET id = 9 WHERE id = 2",
        "DELETE FROM orders WHERE id = 3",
    )
    changes = read_until(connector, 5)
    assert said(changes) == [
        {"id": 3, "state": "late"},
        {"id": 1, "state": "done"},
        [{"id": 2}],
        {"id": 9, "state": None},
        [{"id": 3}],
    ]
    numbers = [each.number or 0 for each in records(changes)]
    assert numbers == sorted(numbers)
    assert numbers[0] >= FIRST_LSN
    assert numbers[2] == numbers[3]
    last = records(changes)[-1]
    assert last.position == lsn_text(last.number or 0)
    assert (last.timestamp_ms or 0) > 1_700_000_000_000
    connector.close()


def test_a_transaction_is_in_one_batch(
    server: PostgresServer, slot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipeline.ingest.sources.postgres.RECORDS_MAX", 4)
    connector = opened(server, slot, **begins("now"))
    server.execute(
        "INSERT INTO orders SELECT at, 'a' FROM generate_series(1, 3) at",
        "INSERT INTO orders SELECT at, 'b' FROM generate_series(4, 9) at",
        "INSERT INTO orders VALUES (10, 'c')",
    )
    batches = read_until(connector, 10)
    assert [len(each.records) for each in batches] == [9, 1]
    assert len({each.number for each in records(batches)}) == 3
    connector.close()


def test_a_start_goes_on_after_the_commit_that_the_gateway_has(
    server: PostgresServer, slot: str
) -> None:
    connector = opened(server, slot, **begins("now"))
    server.execute("INSERT INTO orders VALUES (1, 'a')", "INSERT INTO orders VALUES (2, 'b')")
    through = records(read_until(connector, 2))[0].number
    connector.close()
    server.execute("INSERT INTO orders VALUES (3, 'c')")
    eventually(lambda: is_active(server, slot), False)
    # The gateway has the first one only; the server has heard that both are there.
    connector = opened(server, slot, through)
    assert said(read_until(connector, 1)) == [{"id": 3, "state": "c"}]
    connector.close()


def test_what_was_not_acknowledged_is_read_again_with_its_number(
    server: PostgresServer, slot: str
) -> None:
    connector = opened(server, slot, **begins("now"))
    server.execute("INSERT INTO orders VALUES (1, 'a')")
    batch = connector.read(5.0)
    assert batch is not None
    connector.close()
    eventually(lambda: is_active(server, slot), False)
    connector = opened(server, slot, **begins("now"))
    assert records(read_until(connector, 1)) == batch.records
    connector.close()


def test_rows_are_read_again_until_the_gateway_has_all(
    server: PostgresServer, slot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipeline.ingest.sources.postgres.RECORDS_MAX", 2)
    server.execute("INSERT INTO orders SELECT at, 'a' FROM generate_series(1, 5) at")
    connector = opened(server, slot)
    assert [each.number for each in records(read_until(connector, 2))] == [1, 1]
    connector.close()
    connector = opened(server, slot, through=1)
    assert [each.number for each in records(read_until(connector, 5))] == [2, 2, 3, 3, 4]
    assert connector.read(0.1) is None
    connector.close()
    eventually(lambda: is_active(server, slot), False)
    server.execute("INSERT INTO orders VALUES (6, 'b')")
    connector = opened(server, slot, through=4)
    assert said(read_until(connector, 1)) == [{"id": 6, "state": "b"}]
    connector.close()


def test_a_gateway_that_has_nothing_gets_all_rows_again(server: PostgresServer, slot: str) -> None:
    connector = opened(server, slot)
    assert connector.read(0.1) is None
    server.execute("INSERT INTO orders VALUES (1, 'a')")
    read_until(connector, 1)
    connector.close()
    eventually(lambda: is_active(server, slot), False)
    connector = opened(server, slot)
    assert said(read_until(connector, 1)) == [{"id": 1, "state": "a"}]
    connector.close()


VALUES = {
    "smallint": ("-7", -7),
    "bigint": ("9007199254740993", 9007199254740993),
    "numeric(10,2)": ("1.50", 1.5),
    "float8": ("1e300", 1e300),
    "real": ("'NaN'", "NaN"),
    "boolean": ("true", True),
    "jsonb": ("""'{"a": [1, null]}'""", {"a": [1, None]}),
    "json": ("""'[1,\n2]'""", [1, 2]),
    "text": ("E'a\\t\"\\\\\\n\\u00e9'", 'a\t"\\\né'),
    "bytea": ("'\\x00ff'", "\\x00ff"),
    "int[]": ("'{1,2}'", "{1,2}"),
    "timestamptz": ("'2026-01-02 03:04:05+00'", "2026-01-02 03:04:05+00"),
    "date": ("'2026-01-02'", "2026-01-02"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
}


def test_values_are_the_same_in_rows_that_are_there_and_in_changes(
    server: PostgresServer, slot: str
) -> None:
    columns = ", ".join(f"c{at} {name}" for at, name in enumerate(VALUES))
    texts = ", ".join(text for text, _ in VALUES.values())
    server.execute(
        "DROP TABLE orders",
        f'CREATE TABLE orders ("Id ""x" int PRIMARY KEY, {columns})',
        "ALTER PUBLICATION board ADD TABLE orders",
        "ALTER DATABASE postgres SET timezone = 'UTC'",
        f"INSERT INTO orders VALUES (1, {texts})",
    )
    connector = opened(server, slot)
    first = said(read_until(connector, 1))
    server.execute(f"INSERT INTO orders VALUES (2, {texts})")
    second = said(read_until(connector, 1))
    wanted = {f"c{at}": value for at, (_, value) in enumerate(VALUES.values())}
    assert first == [{'Id "x': 1, **wanted}]
    assert second == [{'Id "x': 2, **wanted}]
    connector.close()


def test_only_rows_and_columns_of_the_publication_are_read(
    server: PostgresServer, slot: str
) -> None:
    server.execute(
        "DROP PUBLICATION board",
        "CREATE PUBLICATION board FOR TABLE orders (id) WHERE (id > 1)",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b')",
    )
    connector = opened(server, slot)
    assert said(read_until(connector, 1)) == [{"id": 2}]
    server.execute("INSERT INTO orders VALUES (0, 'a'), (3, 'b')")
    assert said(read_until(connector, 1)) == [{"id": 3}]
    connector.close()


def test_a_large_value_that_did_not_change_is_a_dead_letter_or_comes_of_the_old_row(
    server: PostgresServer, slot: str
) -> None:
    large = "(SELECT string_agg(md5(at::text), '') FROM generate_series(1, 500) at)"
    server.execute("ALTER TABLE orders ADD COLUMN n int", f"INSERT INTO orders VALUES (1, {large})")
    connector = opened(server, slot, **begins("now"))
    server.execute("UPDATE orders SET n = 1")
    [record] = records(read_until(connector, 1))
    assert record.payload == b'{"id":1,"n":1}'
    assert record.fault == (
        "not sent, as they are large and did not change: state; "
        "ALTER TABLE public.orders REPLICA IDENTITY FULL has them sent"
    )
    server.execute("ALTER TABLE orders REPLICA IDENTITY FULL", "UPDATE orders SET n = 2")
    [record] = records(read_until(connector, 1))
    assert not record.fault
    assert len(msgspec.json.decode(record.payload or b"")["state"]) == 16_000
    server.execute("UPDATE orders SET id = 2", "DELETE FROM orders")
    moved, row, removed = records(read_until(connector, 3))
    assert (moved.payload, removed.payload) == (None, None)
    assert msgspec.json.decode(moved.broker_key or b"")["id"] == 1
    assert msgspec.json.decode(row.payload or b"")["id"] == 2
    assert msgspec.json.decode(removed.broker_key or b"")["id"] == 2
    connector.close()


def test_a_truncated_table_is_a_dead_letter(server: PostgresServer, slot: str) -> None:
    connector = opened(server, slot)
    server.execute("TRUNCATE orders")
    [record] = records(read_until(connector, 1))
    assert record.fault == "table public.orders was truncated: its records stay in the topic"
    connector.close()


def test_changes_of_other_tables_let_the_log_be_removed(server: PostgresServer, slot: str) -> None:
    connector = opened(server, slot, **begins("now"))
    server.execute("DROP TABLE IF EXISTS other", "CREATE TABLE other AS SELECT 1")
    [(end,)] = server.query("SELECT pg_current_wal_lsn() - '0/0'")

    def is_confirmed() -> bool:
        assert connector.read(0.1) is None
        query = f"confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{slot}'"
        [(confirmed,)] = server.query(f"SELECT {query}")
        return bool(confirmed >= end)

    eventually(is_confirmed, True)
    connector.close()


def test_a_slot_or_a_log_that_is_gone_ends_the_source(server: PostgresServer, slot: str) -> None:
    with pytest.raises(SourceLost, match=f"there is no replication slot {slot} at 127.0.0.1"):
        opened(server, slot, through=FIRST_LSN)
    opened(server, slot, **begins("now")).close()
    eventually(lambda: is_active(server, slot), False)
    with pytest.raises(SourceLost, match=r"the log of .* ends at .* and 7FFFFFFF/0 was published"):
        opened(server, slot, through=0x7FFFFFFF_00000000)


def test_a_slot_that_was_too_far_behind_ends_the_source(server: PostgresServer, slot: str) -> None:
    opened(server, slot, **begins("now")).close()
    eventually(lambda: is_active(server, slot), False)
    server.execute(
        "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'",
        "SELECT pg_reload_conf()",
        *["SELECT pg_switch_wal()", "CREATE TABLE filler AS SELECT 1", "DROP TABLE filler"] * 3,
        "CHECKPOINT",
    )
    try:
        with pytest.raises(SourceLost, match=f"slot {slot} at .* no longer has what follows"):
            opened(server, slot, through=FIRST_LSN)
    finally:
        server.execute("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")


def test_a_publication_that_is_not_there_is_a_sentence(server: PostgresServer, slot: str) -> None:
    with pytest.raises(EndpointRefused, match="there is no publication nothing at 127"):
        opened(server, slot, publication="nothing")


def test_a_refused_user_is_a_sentence_without_the_password(
    server: PostgresServer, slot: str
) -> None:
    server.execute("DROP ROLE IF EXISTS guarded", "CREATE ROLE guarded LOGIN PASSWORD 'right'")
    with pytest.raises(EndpointRefused, match="password authentication failed") as raised:
        opened(server, slot, address=server.address("guarded:secret"))
    assert "secret" not in str(raised.value)


def test_a_server_that_ends_or_is_not_there_is_a_sentence(slot: str) -> None:
    with postgres_server() as server:
        server.execute("CREATE TABLE orders (id int)", "CREATE PUBLICATION board FOR TABLE orders")
        connector = opened(server, slot)
        assert connector.read(0.1) is None
    with pytest.raises(EndpointUnavailable, match=f"postgres 127.0.0.1:{server.port}/postgres: "):
        connector.read(1.0)
    connector.close()
    with pytest.raises(EndpointUnavailable, match="Connection refused"):
        opened(server, slot)


@rule("ingest-1")
def test_a_table_is_a_topic_over_restarts(
    server: PostgresServer, slot: str, tmp_path: Path
) -> None:
    definition = f"""
        [ingest.orders]
        key = ["/id"]
        sink = {{topic = "orders"}}
        [ingest.orders.source]
        kind = "postgres"
        address = "{server.address()}"
        publication = "board"
        slot = "{slot}"
    """
    server.execute("INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    with serving_here() as address:
        with ingesting(tmp_path, definition, address):
            eventually(lambda: len(journal(address, "orders")), 2)
            server.execute("UPDATE orders SET state = 'c' WHERE id = 1")
            eventually(lambda: len(journal(address, "orders")), 3)
        server.execute("DELETE FROM orders WHERE id = 2", "INSERT INTO orders VALUES (3, 'd')")
        eventually(lambda: is_active(server, slot), False)
        with ingesting(tmp_path, definition, address) as lines:
            eventually(lambda: len(journal(address, "orders")), 5)
        assert journal(address, "orders") == [
            {"id": 1, "state": "a"},
            {"id": 2, "state": "b"},
            {"id": 1, "state": "c"},
            [2],
            {"id": 3, "state": "d"},
        ]
        place = f"postgres 127.0.0.1:{server.port}/postgres publication board"
        assert lines[0] == f"orders: {place} to topic orders"
