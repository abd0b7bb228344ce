"""What can be published again, and in which order it is found."""

from __future__ import annotations

import gzip
import math
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.archive.archives import archive, removal, row
from tests.support.rules import rule
from tidegate.keys.path import FieldPath
from tidegate.pipeline.archive.folder import TopicFolder
from tidegate.pipeline.archive.histories import open_history
from tidegate.pipeline.archive.recorded import BEGINNING, History, RecordedPlace, Window
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.errors import HistoryInvalid, HistoryUnreadable, UsageInvalid

EVERYTHING = Window()
AT_TS = TimeField(FieldPath.parse("/ts"))


def values(
    history: History, after: RecordedPlace = BEGINNING, window: Window | None = None
) -> list[bytes]:
    found = history.messages(after, window or Window())
    return [message.value or b"-" for message in found]


def opened(path: Path, source: str | None = None, time: TimeField | None = None) -> History:
    return open_history(path, "ticks", source, time)


def test_the_topics_of_an_archive(tmp_path: Path) -> None:
    archive(TopicFolder(tmp_path, "ticks"), [row(1), removal(2)])
    assert values(opened(tmp_path)) == [b'{"k":"a","n":1}', b"-"]
    assert values(opened(tmp_path / "topic=ticks")) == values(opened(tmp_path))
    archive(TopicFolder(tmp_path, "other"), [row(1, n=9)])
    assert values(opened(tmp_path, "other")) == [b'{"k":"a","n":9}']
    assert values(opened(tmp_path)) == [b'{"k":"a","n":1}', b"-"]
    assert opened(tmp_path).name == "ticks"


def test_the_only_topic_of_an_archive_need_not_be_named(tmp_path: Path) -> None:
    archive(TopicFolder(tmp_path, "other"), [row(1)])
    (tmp_path / "topic=begun").mkdir()  # nothing came of it yet
    assert opened(tmp_path).name == "other"
    archive(TopicFolder(tmp_path, "more"), [row(1)])
    with pytest.raises(UsageInvalid, match="the topics more, other: say which"):
        opened(tmp_path)
    with pytest.raises(UsageInvalid, match="no such topic; it has more, other"):
        opened(tmp_path, "none")
    (tmp_path / "topic=bare").mkdir()
    with pytest.raises(HistoryUnreadable, match="nothing in this archive"):
        opened(tmp_path, "bare")


def test_lines_stand_in_the_order_of_files_and_blank_ones_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "2.ndjson").write_bytes(b'{"n":3}\n\n')
    with gzip.open(tmp_path / "1.ndjson.gz", "wb") as file:
        file.write(b'{"n":1}\r\n  \n{"n":2}')
    (tmp_path / ".hidden").write_bytes(b"no")
    history = opened(tmp_path)
    assert values(history) == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    assert values(history, RecordedPlace("", 2)) == [b'{"n":3}']
    assert not history.has_times


def test_times_stand_in_a_field(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(b'{"ts":1000}\n{"ts":3000}\n{"ts":2000}\n{"ts":"1970-01-01T00:00:04Z"}\n')
    history = opened(path, time=AT_TS)
    clocks = [message.clock_ms for message in history.messages(BEGINNING, Window())]
    assert clocks == [1_000, 3_000, 3_000, 4_000]
    assert len(values(history, window=Window(3_000, 4_000))) == 2
    path.write_bytes(b'{"ts":1}\n{"ts":null}\n')
    with pytest.raises(HistoryInvalid, match=r"a\.ndjson, line 2: no time in /ts"):
        values(history)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"n":"\xff"}', "not valid UTF-8, at byte 6"),
        (b'{"n":', "not JSON: Input data was truncated, at byte 5"),
        (b'1,"key":["a"],"reason":"deleted"', "not JSON: trailing characters, at byte 1"),
    ],
)
def test_a_bad_line_is_an_error_with_its_number(tmp_path: Path, line: bytes, said: str) -> None:
    """The last would have been a removal in an envelope."""
    (tmp_path / "1.ndjson").write_bytes(b'{"n":1}\n\n{"n":2}\n')
    (tmp_path / "2.ndjson").write_bytes(b'\n{"n":3}\n' + line + b"\n")
    found = opened(tmp_path).messages(BEGINNING, Window())
    assert [str(next(found).location) for _ in range(3)] == [
        "1.ndjson, line 1",
        "1.ndjson, line 3",
        "2.ndjson, line 2",
    ]
    with pytest.raises(HistoryInvalid, match=f"^2.ndjson, line 3: {said}$"):
        next(found)


def test_a_bad_text_of_parquet_is_an_error_with_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipeline.archive.histories.ROWS_AT_ONCE", 2)
    texts = pa.array([b'"a"', b'"b"', b'"c"', b'"\xff"'], pa.binary())
    pq.write_table(pa.table({"value": texts.view(pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(HistoryInvalid, match=r"^a\.parquet, row 4: a text is not valid UTF-8$"):
        values(opened(tmp_path / "a.parquet"))
    pq.write_table(pa.table({"value": texts}), tmp_path / "a.parquet")
    with pytest.raises(HistoryInvalid, match=r"^a\.parquet, row 4: not valid UTF-8"):
        values(opened(tmp_path / "a.parquet"))


@rule("pipeline-7")
@pytest.mark.parametrize(
    "prices",
    [
        pa.array([math.nan]),
        pa.array([[1.0, math.inf]]),
        pa.array([{"bid": -math.inf}]),
        pa.array([[("bid", math.nan)]], pa.map_(pa.string(), pa.float64())),
    ],
)
def test_a_number_that_json_lacks_is_an_error_and_not_null(
    tmp_path: Path, prices: pa.Array
) -> None:
    pq.write_table(pa.table({"n": [1], "price": prices}), tmp_path / "a.parquet")
    with pytest.raises(HistoryInvalid, match=r"^a\.parquet, row 1: price is NaN or infinite$"):
        values(opened(tmp_path / "a.parquet"))


def test_rows_of_parquet_are_values_or_objects(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2], "price": [Decimal("1.50"), None]})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert values(opened(tmp_path / "rows.parquet")) == [b'{"n":1,"price":1.50}', b'{"n":2}']
    table = pa.table({"value": ['{"n":1}', None, '{"n":2}'], "timestamp_ms": [5, 6, 7]})
    pq.write_table(table, tmp_path / "values.parquet")
    history = opened(tmp_path / "values.parquet")
    assert history.has_times
    assert values(history, window=Window(6)) == [b'{"n":2}']


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HistoryUnreadable, match="no such file"):
        opened(tmp_path / "none")
    (tmp_path / "a.gz").write_bytes(b"no gzip")
    with pytest.raises(HistoryUnreadable, match="not a whole gzip file"):
        values(opened(tmp_path / "a.gz"))
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(HistoryUnreadable, match="cannot be read as Parquet"):
        opened(tmp_path / "a.parquet")
    (tmp_path / "b.ndjson").write_bytes(b"{}")
    with pytest.raises(UsageInvalid, match="is not an archive"):
        opened(tmp_path / "b.ndjson", "ticks")
