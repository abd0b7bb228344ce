"""However a file is cut into blocks, each of its lines is read once and in order."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.pipeline.columns import blocks
from tidegate.pipeline.columns.blocks import (
    BLOCKS,
    block_count,
    blocks_of,
    lines_by_block,
    on_one_line,
    page_of,
    pieces,
    trimmed,
)
from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema, file_and_block, part_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batch(*rows: tuple[str, int, bytes]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[0]), pa.array(columns[1]), pa.array(columns[2])],
        ["file", "block", "body"],
    )


def test_pieces_stand_in_one_block_and_count_its_lines() -> None:
    batches = [
        batch(("a", 0, b"1"), ("a", 0, b"2"), ("a", 9, b"3"), ("b", 9, b"4")),
        batch(("b", 9, b"5")).slice(0, 0),
        batch(("b", 9, b"5"), ("b", 9, b"6"), ("a", 9, b"7")),
    ]
    found = [
        (part.replace("\0", " ").replace("0" * 18, ""), row, piece.column("body").to_pylist())
        for part, row, piece in lines_by_block(iter(batches))
    ]
    assert found == [
        ("a 0", 0, [b"1", b"2"]),
        ("a 9", 0, [b"3"]),
        ("b 9", 0, [b"4"]),
        ("b 9", 1, [b"5", b"6"]),
        ("a 9", 0, [b"7"]),
    ]


def test_lines_lose_the_space_around_them_utf_8_or_not() -> None:
    lines = pa.array([b" \t1\r", b"", None, b'{"a":\n1}', b"\x0c1", b"\xff "], pa.binary())
    assert trimmed(lines).to_pylist() == [b"1", b"", None, b'{"a":\n1}', b"\x0c1", b"\xff"]


def test_checked_texts_lose_their_breaks() -> None:
    texts = pa.array([b"1", None, b'{"a":\n1,\r\n"b":\t2}'], pa.binary())
    assert on_one_line(texts).to_pylist() == [b"1", None, b'{"a": 1,  "b":\t2}']
    whole = pa.array([b"1", b"{}"], pa.binary())
    assert on_one_line(whole) is whole


SCHEMA = arrow_schema(BLOCKS)
texts = st.lists(st.sampled_from([b"", b"a", b"bb\r", b" ccc ", b"\n", b"\r\n", b"\n\n"]))


def of_blocks(path: Path, *cuts: int) -> list[tuple[int, int, bytes]]:
    """Block, place and text of each line, its break aside."""
    rows = [
        dict.fromkeys(SCHEMA.names) | {"file": f"7\0{path.as_uri()}", "block": start, "end": end}
        for start, end in zip([0, *cuts], [*cuts, path.stat().st_size], strict=True)
    ]
    found = []
    for part, row, piece in pieces(iter([pa.RecordBatch.from_pylist(rows, SCHEMA)])):
        assert piece.schema == arrow_schema(PUBLISHED)
        lines: list[bytes] = piece.column("body").to_pylist()
        # Blank lines at the end of a text are lines too: only the break itself is left out.
        of_part = [line.removesuffix(b"\n") for line in lines]
        found += [(file_and_block(part)[1], row + at, line) for at, line in enumerate(of_part)]
    return found


def lines_of(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    return lines if lines[-1] else lines[:-1]


@examples(25)
@given(texts.map(b"".join), st.lists(st.integers(0, 40), max_size=4), st.integers(1, 9))
def test_every_line_is_in_the_block_in_which_it_begins(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, cuts: list[int], size: int
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "a b.ndjson"
    path.write_bytes(text)
    cuts = sorted({cut for cut in cuts if 0 < cut < len(text)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "READ_BYTES", size)
        patch.setattr(blocks, "SEARCHED_BYTES", size)
        found = of_blocks(path, *cuts)
    assert [line for _, _, line in found] == lines_of(text)
    begins, expected = 0, []
    for line in lines_of(text):
        expected.append(max(start for start in [0, *cuts] if start <= begins))
        begins += len(line) + 1
    assert [start for start, _, _ in found] == expected
    for start in set(expected):
        assert [row for block, row, _ in found if block == start] == list(
            range(expected.count(start))
        )


@pytest.mark.parametrize(
    ("name", "pack"),
    [("a.ndjson.gz", gzip.compress), ("a.bz2", bz2.compress),
     ("a.zst", lambda text: pa.compress(text, "zstd", asbytes=True))],
)  # fmt: skip
def test_a_compressed_file_is_one_block(tmp_path: Path, name: str, pack: Any) -> None:
    path = tmp_path / name
    path.write_bytes(pack(b"1\n22\n") + pack(b"333"))
    assert of_blocks(path) == [(0, 0, b"1"), (0, 1, b"22"), (0, 2, b"333")]


def test_a_byte_order_mark_is_no_part_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(b"\xef\xbb\xbf1\n\xef\xbb\xbf2\n")
    assert of_blocks(path, 5) == [(0, 0, b"1"), (5, 0, b"\xef\xbb\xbf2")]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson.gz"
    path.write_bytes(gzip.compress(b"1\n" * 100_000)[:-20])
    with pytest.raises(OSError, match=r"a\.ndjson\.gz: .*[Tt]runcated"):
        of_blocks(path)
    path.unlink()
    rows = [dict.fromkeys(SCHEMA.names) | {"file": path.as_uri(), "block": 0, "end": 1}]
    with pytest.raises(FileNotFoundError, match=r"a\.ndjson\.gz"):
        list(pieces(iter([pa.RecordBatch.from_pylist(rows, SCHEMA)])))


def test_a_task_without_blocks_has_no_lines() -> None:
    assert list(pieces(iter([]))) == []


@pytest.mark.spark
@pytest.mark.nightly
def test_spark_cuts_large_files_and_shares_them_out(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    monkeypatch.setattr(blocks, "BLOCK_BYTES", 10)
    files = spark.createDataFrame(
        [("a", 25), ("b.gz", 25), ("c", 0), ("d", 10)], "f string, n long"
    )
    cut = blocks_of(files, F.col("f"), F.col("n"), 3)
    assert cut.schema.names == arrow_schema(BLOCKS).names
    rows = sorted(tuple(row)[:3] for row in cut.collect())
    assert rows == [("a", 0, 10), ("a", 10, 20), ("a", 20, 30), ("b.gz", 0, 25), ("d", 0, 10)]
    assert cut.rdd.getNumPartitions() == 3
    counted = [block_count(row.f, row.n) for row in files.collect()]
    assert counted == [sum(file == row.f for file, *_ in rows) for row in files.collect()]


def test_pages_are_read_as_the_rows_in_them() -> None:
    schema = arrow_schema(PUBLISHED)
    rows = [
        dict.fromkeys(schema.names)
        | {"file": "f", "block": at // 3, "position": at, "body": b"%d" % at}
        for at in range(7)
    ]
    pages = [pa.RecordBatch.from_pylist(part, schema=schema) for part in (rows[:2], rows[2:], [])]
    sent = pa.Table.from_batches(map(page_of, pages)).combine_chunks().to_batches()
    read = list(pieces(iter(sent)))
    assert [(part, row) for part, row, _ in read] == [
        (part_of("f", 0), 0), (part_of("f", 0), 2), (part_of("f", 1), 0), (part_of("f", 2), 0)
    ]  # fmt: skip
    assert [row for _, _, piece in read for row in piece.to_pylist()] == rows
