"""Rows are in files of Parquet, each once, whatever is killed; numbers are exact."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.forward.forwarding import definitions, forwarding
from tests.pipeline.ingest.ingesting import eventually, journal
from tests.support import commands
from tests.support.commands import serving_here
from tests.support.external.duckdb import DuckDb
from tests.support.profiles import SEED
from tests.support.rules import rule
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.errors import DefinitionInvalid, InUse
from tidegate.pipeline.forward.sinks.parquet import ParquetTarget
from tidegate.pipeline.forward.sinks.parquet_columns import declared_columns
from tidegate.pipeline.forward.target import Patience, Row

pytestmark = pytest.mark.system
TYPES = 'k = "string", price = "decimal(18, 4)", n = "int64", x = "float64", b = "bool"'
COLUMNS = f'columns = {{{TYPES}, t = "timestamp", d = "date"}}'
SCHEMA = {
    "properties": {
        "k": {"type": "string"},
        "price": {"type": "number", "multipleOf": 0.0001},
        "n": {"type": ["integer", "null"]},
        "big": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},
        "huge": {"type": "integer", "maximum": 10**36},
        "x": {"type": "number"},
        "b": {"type": "boolean"},
        "t": {"type": "string", "format": "date-time"},
        "d": {"type": "string", "format": "date"},
        "legs": {"type": "array"},
        "mixed": {},
    }
}
FULL = (
    b'{"k":"a","price":1234567890123456789012345678901234.5678,"n":9007199254740993,'
    b'"big":18446744073709551615,"huge":1000000000000000000000000000001,"x":0.1,"b":true,'
    b'"t":"2026-01-31T13:00:00.123456+01:00","d":"2026-01-31","legs":[1.50, {"a":null}],'
    b'"mixed":"text","more":1.50}'
)
PARTIAL = b'{"k":"b","price":1.5,"n":1e3,"mixed":1.50}'
EXACT = {
    "k": ["a", "b"],
    "price": [Decimal("1234567890123456789012345678901234.5678"), Decimal("1.5000")],
    "n": [9007199254740993, 1000],
    "big": [18446744073709551615, None],
    "huge": [Decimal(1000000000000000000000000000001), None],
    "x": [0.1, None],
    "b": [True, None],
    "t": [datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC), None],
    "d": [date(2026, 1, 31), None],
    "legs": ['[1.50, {"a":null}]', None],
    "mixed": ['"text"', "1.50"],
    "_others": ['{"more":1.50}', None],
}


def file(more: str = "seconds_max = 1", source: str = "conflation=50ms") -> str:
    return f"""
        [forward.prices]
        source = {{topic = "prices", options = "{source}"}}
        sink = {{kind = "parquet", path = "prices.parquet", {more}}}
    """


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("prices-*.parquet"))


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for path in files(folder) for row in pq.read_table(path).to_pylist()]


def opened(folder: Path, more: str = "rows_max = 2") -> tuple[ParquetTarget, str]:
    [definition] = definitions(folder, file(more), "http://127.0.0.1:8080")
    target = definition.sink.target("prices", Patience(time.sleep, print))
    assert isinstance(target, ParquetTarget)
    target.open()
    return target, target.resume("identity")


def row(value: bytes) -> Row:
    fields = {"op": b'"publish"', "key": b'["a"]', "value": value}
    return Row("publish", {name: msgspec.Raw(text) for name, text in fields.items()})


def test_rows_removals_and_a_resume_are_rows_of_files(tmp_path: Path) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": 1}, {"k": 2}])
        with forwarding(tmp_path, file(), address):
            eventually(lambda: len(rows(tmp_path)), 3)  # although nothing arrives any more
            gateway.delete_records("prices", record_key=2)
        gateway.publish("prices", {"k": 3})
        with forwarding(tmp_path, file("seconds_max = 3600"), address):
            eventually(lambda: len(rows(tmp_path)), 4)  # the end of a run writes what it has
            time.sleep(0.5)
        eventually(lambda: len(rows(tmp_path)), 5)
    found = [(each["_op"], each["_key"], each["_value"]) for each in rows(tmp_path)]
    assert found == [
        ("reset", None, None),
        ("snapshot", "[1]", '{"k":1}'),
        ("snapshot", "[2]", '{"k":2}'),
        ("delete", "[2]", '{"k":2}'),
        ("publish", "[3]", '{"k":3}'),
    ]
    assert rows(tmp_path)[3]["_reason"] == "deleted"
    assert not list(tmp_path.glob(".*"))


def test_columns_have_types_and_exact_numbers_for_every_reader(tmp_path: Path) -> None:
    target, _ = opened(tmp_path, COLUMNS)
    with closing(target):
        text = b'{"k":"a","price":12345678901234.1234,"n":9007199254740993,"x":0.1,"b":true,"y":1}'
        partial = [row(b'{"k":null,"price":"1.5"}'), row(b"null")]
        assert target.write([row(text), *partial]) == []
        target.note("e-1")
    [path] = files(tmp_path)
    table = pq.read_table(path)
    assert table.schema.field("price").type == pa.decimal128(18, 4)
    assert table.schema.names == [
        "_op",
        "_key",
        "_bookmark",
        "_reason",
        "k",
        "price",
        "n",
        "x",
        "b",
        "t",
        "d",
    ]
    wanted = {
        "k": ["a", None, None],
        "price": [Decimal("12345678901234.1234"), Decimal("1.5000"), None],
        "n": [9007199254740993, None, None],
        "x": [0.1, None, None],
        "b": [True, None, None],
    }
    assert table.select(list(wanted)).to_pydict() == wanted
    assert polars.read_parquet(path).select(list(wanted)).to_dict(as_series=False) == wanted
    frame = pandas.read_parquet(path, dtype_backend="pyarrow")
    assert frame["n"].iloc[0] == 9007199254740993
    assert frame["price"].iloc[0] == Decimal("12345678901234.1234")


def written(folder: Path) -> Path:
    """A file of a topic that has a schema."""
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"], "schema": SCHEMA})
        gateway.publish("prices", [FULL, PARTIAL])
        gateway.delete_records("prices", record_key="c")
        with forwarding(folder, file(), address):
            eventually(lambda: len(rows(folder)), 3)
    [path] = files(folder)
    return path


def test_columns_are_those_of_the_schema(tmp_path: Path) -> None:
    path = written(tmp_path)
    table = pq.read_table(path).slice(1)  # after the reset
    assert table.select(list(EXACT)).to_pydict() == EXACT
    assert table.schema.field("legs").metadata == {b"content-type": b"application/json"}
    assert str(table.schema.field("price").type) == "decimal128(38, 4)"
    assert "_value" not in table.schema.names
    frame = polars.read_parquet(path).slice(1)
    assert frame.select(list(EXACT)).to_dict(as_series=False) == EXACT


@pytest.mark.nightly
def test_duckdb_reads_the_columns_of_the_schema(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    duckdb = DuckDb(tmp_path_factory.mktemp("duckdb"))
    path = written(tmp_path)
    names = ", ".join(EXACT)
    query = f"SELECT {names} FROM '{path.name}' WHERE _op = 'snapshot' ORDER BY k"
    types = duckdb.ask(f"DESCRIBE {query}", tmp_path)
    assert [each[1] for each in types] == [
        *("VARCHAR", "DECIMAL(38,4)", "BIGINT", "UBIGINT", "DECIMAL(38,0)", "DOUBLE", "BOOLEAN"),
        *("TIMESTAMP WITH TIME ZONE", "DATE", "VARCHAR", "VARCHAR", "VARCHAR"),
    ]
    texts = ", ".join(f"{name}::VARCHAR" for name in EXACT if name != "t")
    found = duckdb.ask(query.replace(names, f"{texts}, epoch_us(t)"), tmp_path)
    assert found[0] == [
        *("a", "1234567890123456789012345678901234.5678", "9007199254740993"),
        *("18446744073709551615", "1000000000000000000000000000001", "0.1", "true", "2026-01-31"),
        *('[1.50, {"a":null}]', '"text"', '{"more":1.50}', 1_769_860_800_123_456),
    ]


@pytest.mark.parametrize(
    "schema",
    [None, True, {}, {"type": "object"}, {"properties": {}}, {"properties": {"_op": {}}}],
)
def test_a_schema_without_fields_declares_no_columns(tmp_path: Path, schema: object) -> None:
    target, _ = opened(tmp_path)
    with closing(target):
        target.declare(schema)
        target.write([row(b'{"k": 1}'), row(b"1")])
        target.note("e-1")
    assert [each["_value"] for each in rows(tmp_path)] == ['{"k": 1}', "1"]


@pytest.mark.parametrize(
    ("declared", "type_name"),
    [
        ({"type": "integer", "minimum": -1, "maximum": 2**64 - 1}, "decimal128(38, 0)"),
        ({"type": "integer", "exclusiveMaximum": 2**63}, "int64"),
        ({"type": "number", "multipleOf": 0.25}, "decimal128(38, 2)"),
        ({"type": "number", "multipleOf": 1e-38}, "decimal128(38, 38)"),
        ({"type": "number", "multipleOf": 1e-39}, "string"),
        ({"type": "number", "multipleOf": 10}, "int64"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string"]}, "string"),
        ({"type": "null"}, "string"),
        ({"type": "string", "format": "time"}, "string"),
        (True, "string"),
    ],
)
def test_a_field_has_the_type_that_keeps_its_values(declared: object, type_name: str) -> None:
    [column] = declared_columns({"properties": {"a": declared}})
    assert str(column.type) == type_name


def test_columns_of_the_definition_go_before_those_of_the_schema(tmp_path: Path) -> None:
    for columns, names in (('{n = "int64"}', ["n"]), ("{}", ["_value"])):
        target, _ = opened(tmp_path, f"rows_max = 1, columns = {columns}")
        with closing(target):
            target.declare(SCHEMA)
            target.write([row(PARTIAL)])
            target.note(columns)
        path = files(tmp_path)[-1]
        assert pq.read_schema(path).names[4:] == names


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"price":1.23456}', "its price is not of type decimal128(18, 4)"),
        (b'{"price":123456789012345}', "its price is not of type decimal128(18, 4)"),
        (b'{"price":"NaN"}', "its price is not of type decimal128(18, 4)"),
        (b'{"n":9223372036854775808}', "its n is not of type int64"),
        (b'{"n":1.5}', "its n is not of type int64"),
        (b'{"n":"1"}', "its n is not of type int64"),
        (b'{"n":1e999999999}', "its n is not of type int64"),
        (b'{"n":1e-99999999999999999999}', "its n is not of type int64"),
        (b'{"x":0.12345678901234567890}', "its x is not of type double"),
        (b'{"x":9007199254740993}', "its x is not of type double"),
        (b'{"t":"2026-01-31T12:00:00.1234567Z"}', "its t is not of type timestamp[us, tz=UTC]"),
        (b'{"t":"2026-01-31T12:00:00"}', "its t is not of type timestamp[us, tz=UTC]"),
        (b'{"t":"0001-01-01T00:00:00+01:00"}', "its t is not of type timestamp[us, tz=UTC]"),
        (b'{"d":"2026-02-30"}', "its d is not of type date32[day]"),
        (b'{"k":1}', "its k is not of type string"),
        (b'{"b":0}', "its b is not of type bool"),
        (b"[1]", "its value is not an object"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(tmp_path: Path, value: bytes, reason: str) -> None:
    target, _ = opened(tmp_path, COLUMNS)
    with closing(target):
        [refused] = target.write([row(b'{"n":1}'), row(value)])
        assert refused.reason == reason
        target.note("e-1")
    assert [each["n"] for each in rows(tmp_path)] == [1]


def test_a_row_that_does_not_fit_is_a_dead_letter(tmp_path: Path) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": 1, "n": 1}, {"k": 2, "n": 2}])
        with forwarding(tmp_path, file('columns = {k = "string"}, seconds_max = 1'), address):
            eventually(lambda: len(journal(address, "prices.undelivered")), 2)


@rule("forward-5")
def test_a_file_and_its_position_are_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    def values() -> list[str]:
        return [each["_value"] for each in rows(tmp_path)]

    # Before the position is noted: the rows are asked for again.
    target, after = opened(tmp_path)
    assert after == ""
    target.write([row(b"1"), row(b"2")])
    with monkeypatch.context() as patched:
        patched.setattr("tidegate.pipeline.forward.position.PositionFile.note", kill)
        with pytest.raises(Killed):
            target.note("e-1")
    target._noted.close()
    assert (values(), len(list(tmp_path.glob(".*.unfinished")))) == ([], 1)
    target, after = opened(tmp_path)
    assert (after, values(), list(tmp_path.glob(".*.unfinished"))) == ("", [], [])
    # After it, and before the file has its name.
    target.write([row(b"1"), row(b"2")])
    with monkeypatch.context() as patched:
        patched.setattr("tidegate.pipeline.forward.sinks.parquet._publish", kill)
        with pytest.raises(Killed):
            target.note("e-2")
    target._noted.close()
    assert values() == []
    target, after = opened(tmp_path)
    assert (after, values()) == ("e-2", ["1", "2"])
    # Rows whose position was not noted are not in the file that a stop writes.
    target.write([row(b"3")])
    target.note("e-3")
    target.write([row(b"4")])
    target.close()
    assert values() == ["1", "2", "3"]
    # Files may be taken away.
    for path in files(tmp_path):
        path.unlink()
    target, after = opened(tmp_path)
    target.close()
    assert (after, values()) == ("e-3", [])


def test_a_start_leaves_the_files_of_another_forward_alone(tmp_path: Path) -> None:
    names = [
        f".{each}-20260131T120000.000000Z.parquet.unfinished" for each in ("prices", "prices-eu")
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    target, _ = opened(tmp_path)
    target.close()
    assert [path.name for path in tmp_path.glob(".*.unfinished")] == names[1:]


def test_one_process_writes_files_of_a_name(tmp_path: Path) -> None:
    target, _ = opened(tmp_path)
    with closing(target), pytest.raises(InUse, match="another process forwards from"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            '{a = "int32"}',
            "sink.columns.a: expected bool, int64, float64, string, timestamp, date, or dec",
        ),
        ('{a = "decimal(39, 1)"}', "sink.columns.a: expected bool, int64"),
        ('{a = "decimal(3, 4)"}', "sink.columns.a: expected bool, int64"),
        ('{_op = "string"}', "sink.columns._op: columns of the envelope begin with _"),
        ('"a"', "sink.columns: expected a table such as"),
    ],
)
def test_a_column_that_is_none_is_refused(tmp_path: Path, columns: str, said: str) -> None:
    with pytest.raises(DefinitionInvalid, match=said):
        definitions(tmp_path, file(f"columns = {columns}"), "http://127.0.0.1:8080")


@pytest.mark.nightly
@rule("forward-5")
def test_every_row_is_in_a_file_once_whatever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    count = 1_000
    path = tmp_path / "targets.toml"
    path.write_text(file("rows_max = 20, seconds_max = 1", "conflation=none,bookmark=epoch"))
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"conflation": "off"})

        def publish() -> None:
            for number in range(count):
                gateway.publish("prices", number)
                time.sleep(0.01)

        publishing = threading.Thread(target=publish)
        publishing.start()
        command = commands.start("forward", str(path), TIDEGATE_GATEWAY=address)
        while publishing.is_alive():
            time.sleep(chance.uniform(0.5, 2.5))
            command.kill()
            command.communicate()
            command = commands.start("forward", str(path), TIDEGATE_GATEWAY=address)
        publishing.join()
        eventually(lambda: len(rows(tmp_path)) >= count, True)
        command.kill()
        command.communicate()
    assert [each["_value"] for each in rows(tmp_path)] == [str(at) for at in range(count)]
