"""Rows are in files of Parquet, each once, whatever is killed; numbers are exact."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing
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
from tests.support.profiles import SEED
from tests.support.rules import rule
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.errors import CheckpointMismatch, DefinitionInvalid
from tidegate.pipeline.forward.sinks.parquet import ParquetTarget
from tidegate.pipeline.forward.target import Patience, Row

pytestmark = pytest.mark.system
TYPES = 'k = "string", price = "decimal(18, 4)", n = "int64", x = "float64", b = "bool"'
COLUMNS = f"columns = {{{TYPES}}}"


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
        assert target.write([row(text), row(b'{"k":null,"price":"1.5"}')]) == []
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
    ]
    wanted = {
        "k": ["a", None],
        "price": [Decimal("12345678901234.1234"), Decimal("1.5000")],
        "n": [9007199254740993, None],
        "x": [0.1, None],
        "b": [True, None],
    }
    assert table.select(list(wanted)).to_pydict() == wanted
    assert polars.read_parquet(path).select(list(wanted)).to_dict(as_series=False) == wanted
    frame = pandas.read_parquet(path, dtype_backend="pyarrow")
    assert frame["n"].iloc[0] == 9007199254740993
    assert frame["price"].iloc[0] == Decimal("12345678901234.1234")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"price":1.23456}', "its price is no decimal128(18, 4)"),
        (b'{"price":123456789012345}', "its price is no decimal128(18, 4)"),
        (b'{"price":"NaN"}', "its price is no decimal128(18, 4)"),
        (b'{"n":9223372036854775808}', "its n is no int64"),
        (b'{"n":1.5}', "its n is no int64"),
        (b'{"k":1}', "its k is no string"),
        (b'{"b":0}', "its b is no bool"),
        (b"[1]", "its value is no object"),
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


def test_one_process_writes_files_of_a_name(tmp_path: Path) -> None:
    target, _ = opened(tmp_path)
    with closing(target), pytest.raises(CheckpointMismatch, match="another process forwards from"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ('{a = "int32"}', "sink.columns.a: expected bool, int64, float64, string, or decimal"),
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
