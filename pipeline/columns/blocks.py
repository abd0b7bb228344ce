"""The messages of a task, a block of a file at a time; files are read where they are conflated.

A row that Spark reads is passed from Java to Python, which takes longer than decoding it. So Spark
only plans blocks (`BLOCKS`): it lists files and keeps them in its checkpoint, and a task gets a
name and two numbers. Only conflated rows pass through Java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.columns.rows import (
    PUBLISHED,
    arrow_schema,
    file_and_block,
    file_name,
    part_of,
)
from tidegate.pipeline.errors import HistoryInvalid
from tidegate.pipeline.files.block_format import BlockFormat
from tidegate.pipeline.files.csv_lines import HeaderInvalidError, csv_rows
from tidegate.pipeline.files.parquet_rows import parquet_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BLOCKS = (
    "file string, block long, end long, block_format string, folder_fields string, content binary"
)
"""A block of a file as a row: `file` and `block` (its first byte) as in PUBLISHED, and its end.

`block_format` is a `BlockFormat` as text (null: NDJSON), `folder_fields` an object with the fields
that the names of its folders add to each row. `content` is the file where tasks cannot open it.
"""

PAGES = "page binary"
"""PUBLISHED rows, some thousand of them as one row of Spark: an Arrow stream.

Copying a row of nine columns into Java and out again takes longer than all other work on it.
"""

# Large enough to make up for a task's start, small enough that tasks end at about the same time.
BLOCK_BYTES = 16 * 1024 * 1024
READ_BYTES = 4 * 1024 * 1024
SEARCHED_BYTES = 64 * 1024
COMPRESSED = (".gz", ".bz2", ".zst")
"""Endings of files that have no middle to begin at. Arrow unpacks them by these names too."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SPACE = " \t\r\n"
LINE_BREAK = ord("\n")
CONTROL_BELOW = ord(" ")
_SCHEMA = arrow_schema(PUBLISHED)


def blocks_of(
    files: DataFrame,
    file: Column,
    size: Column,
    tasks: int,
    *,
    block_format: BlockFormat | None = None,
    folder_fields: Column | None = None,
    content: Column | None = None,
) -> DataFrame:
    """Return the blocks (`BLOCKS`) of files, shared among some tasks; of `content` one a file."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    said = {"file": file, "size": size, "folder_fields": folder_fields, "content": content}
    nothing = {"content": "binary"}
    given = [
        (F.lit(None).cast(nothing.get(name, "string")) if column is None else column).alias(name)
        for name, column in said.items()
    ]
    found = files.select(*given).where("size > 0")
    is_whole = F.col("file").rlike("|".join(rf"\{ending}$" for ending in COMPRESSED))
    is_whole = is_whole | F.lit(content is not None)
    step = F.when(is_whole, F.col("size")).otherwise(F.lit(BLOCK_BYTES))
    begins = F.explode(F.sequence(F.lit(0).cast("long"), F.col("size") - 1, step))
    cut = found.select(
        "file",
        begins.alias("block"),
        (F.col("block") + step).alias("end"),
        F.lit(None if block_format is None else block_format.text)
        .cast("string")
        .alias("block_format"),
        "folder_fields",
        "content",
    )
    # By hand: Spark groups whole files, so that a large one would be read by a single task.
    return cut.repartition(tasks)


def block_count(file: str, size: int) -> int:
    """Return how many blocks `blocks_of` makes of a file."""
    return min(size, 1) if file.endswith(COMPRESSED) else -(-size // BLOCK_BYTES)


def lines_by_block(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield a task's lines in pieces of one block, with the number of each piece's first line.

    Lines count from 0 in each block.
    """
    before, row = None, 0
    for batch in batches:
        for start, length in _stretches(batch):
            piece = batch.slice(start, length)
            here = (piece.column("file")[0].as_py(), piece.column("block")[0].as_py())
            row = row if here == before else 0
            before = here
            yield part_of(*here), row, piece
            row += length


def as_published(messages: DataFrame) -> DataFrame:
    """Return PUBLISHED rows of a source, those of its pages or blocks if it has these.

    For code that works on rows; the lines then pass through Java.
    """
    if not {"end", "page"} & set(messages.columns):
        return messages
    return messages.mapInArrow(_published, PUBLISHED)


def _published(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for part, _, piece in pieces(batches):
        file, block = file_and_block(part)
        yield placed(piece, file, block)


def placed(piece: pa.RecordBatch, file: str, block: int) -> pa.RecordBatch:
    """Return PUBLISHED rows that say of which file and block they are."""
    for name, value in (("file", file), ("block", block)):
        at = piece.schema.get_field_index(name)
        kind = piece.schema.field(at)
        piece = piece.set_column(at, kind, pa.repeat(pa.scalar(value, kind.type), len(piece)))
    return piece


def pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield PUBLISHED rows in pieces of one block, as `lines_by_block`; `BLOCKS` are read here.

    Pages are opened here too. Of rows that are read `file` and `block` are not known, and a `body`
    may end with its line break.

    Raises:
        OSError: a file cannot be read; the text names it.
        HistoryInvalid: a file of CSV has another header.
    """
    first = next(batches, None)
    if first is None:
        return
    together = chain([first], batches)
    if "end" not in first.schema.names:
        yield from lines_by_block(_opened(together) if "page" in first.schema.names else together)
        return
    for batch in together:
        contents = batch.column("content")
        for at, block in enumerate(batch.drop_columns(["content"]).to_pylist()):
            part = part_of(block["file"], block["block"])
            for row, rows in _rows_of(block, contents[at], part):
                yield part, row, rows


@lru_cache(maxsize=64)
def _block_format(text: str | None) -> BlockFormat:
    return BlockFormat.of_text(text)


def _rows_of(
    block: dict[str, Any], content: pa.Scalar, part: str
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a block, and the number of the first."""
    block_format, start, end = _block_format(block["block_format"]), block["block"], block["end"]
    folder_fields = (block["folder_fields"] or "{}")[1:-1]
    address, row = file_name(block["file"]), 0
    try:
        if block_format.format == "parquet":
            if content.is_valid:
                opened: Any = pa.BufferReader(content.as_buffer())
            else:
                files, path = block_format.opened(address)
                opened = files.open_input_file(path)
            with opened:
                for columns in parquet_rows(opened, block_format, start, end, folder_fields):
                    rows = published_rows(**columns)
                    yield row, rows
                    row += len(rows)
            return
        texts = _texts(block_format, address, start, end)
        if block_format.format == "csv":
            lines = (_lines(text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")) for text in texts)
            without_breaks = (_without_breaks(each) for each in lines)
            yield from read_csv(without_breaks, block_format, folder_fields, part)
            return
        for text in texts:
            rows = published_rows(body=_lines(text))
            yield row, rows
            row += len(rows)
    except FileNotFoundError:
        raise  # which names its file
    except (OSError, ValueError, pa.ArrowException) as error:
        raise OSError(f"{address}: {error}") from None


def read_csv(
    lines: Iterable[pa.Array], block_format: BlockFormat, folder_fields: str, part: str
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the lines of one block of CSV as PUBLISHED rows.

    Raises:
        HistoryInvalid: its header is another one.
    """
    has_header = block_format.has_header and file_and_block(part)[1] == 0
    try:
        for row, bodies, refused in csv_rows(
            lines, block_format, folder_fields, has_header=has_header
        ):
            numbers = pa.array(np.arange(row + 1, row + 1 + len(bodies)), pa.int64())
            yield row, published_rows(position=numbers, body=bodies, refused=refused)
    except HeaderInvalidError as error:
        raise wrong_line(part, error.number, error.reason) from None


def csv_published(
    batches: Iterator[pa.RecordBatch], block_format: BlockFormat
) -> Iterator[pa.RecordBatch]:
    """Yield lines of CSV that Spark has read as PUBLISHED rows; `folder_fields` is as in BLOCKS."""
    for part, found in groupby(lines_by_block(batches), lambda found: found[0]):
        pieces_of_part = (piece for _, _, piece in found)
        first = next(pieces_of_part)
        folder_fields = (first.column("folder_fields")[0].as_py() or "{}")[1:-1]
        lines = (piece.column("body") for piece in chain([first], pieces_of_part))
        for _, rows in read_csv(lines, block_format, folder_fields, part):
            yield placed(rows, *file_and_block(part))


def published_rows(**columns: pa.Array) -> pa.RecordBatch:
    """Return PUBLISHED rows with these columns; the others are null."""
    count = len(columns["body"])
    nothing = {field.name: pa.nulls(count, field.type) for field in _SCHEMA}
    return pa.RecordBatch.from_pydict(nothing | columns, schema=_SCHEMA)


def wrong_line(part: str, number: int, reason: str) -> HistoryInvalid:
    """Return the error for a line, from 1, of a part as `lines_by_block` names it."""
    file, start = file_and_block(part)
    name = file_name(file).rpartition("/")[2] or "messages"
    place = f"line {number}" if start == 0 else f"line {number} after byte {start}"
    return HistoryInvalid(f"{name}, {place}: {reason}")


def page_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return PUBLISHED rows as one row (`PAGES`)."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    page = sink.getvalue()
    offsets = pa.py_buffer(np.array([0, page.size], np.int32))
    return pa.RecordBatch.from_arrays(
        [pa.Array.from_buffers(pa.binary(), 1, [None, offsets, page])], names=["page"]
    )


def _opened(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for page in batch.column("page"):
            yield from pa.ipc.open_stream(page.as_buffer())


def _texts(block_format: BlockFormat, address: str, start: int, end: int) -> Iterator[bytes]:
    """Yield the text of a block, some whole lines at a time.

    A line belongs to the block in which it begins.
    """
    files, path = block_format.opened(address)
    if path.endswith(COMPRESSED):
        with files.open_input_stream(path) as stream:
            yield from _whole_lines(iter(lambda: stream.read(READ_BYTES), b""))
        return
    with files.open_input_file(path) as file:
        first, last = _line_from(file, start), _line_from(file, end)
        file.seek(first)
        sizes = (min(READ_BYTES, last - at) for at in range(first, last, READ_BYTES))
        yield from _whole_lines(map(file.read, sizes), has_mark=start == 0)


def _line_from(file: pa.NativeFile, at: int) -> int:
    """Return where the first line at or after a place begins; the end of the file if none does."""
    if at == 0:
        return 0
    # A break just before the place begins a line there.
    at = max(0, min(at, int(file.size())) - 1)
    file.seek(at)
    while read := file.read(SEARCHED_BYTES):
        found: int = read.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(read)
    return at


def _whole_lines(reads: Iterable[bytes], *, has_mark: bool = True) -> Iterator[bytes]:
    """Yield what was read cut at line breaks; only the last text may end without one.

    Args:
        reads: the text in pieces.
        has_mark: leave out a byte order mark at the beginning, as Spark does.
    """
    kept: list[bytes] = []
    for read in reads:
        if has_mark:
            read, has_mark = read.removeprefix(BYTE_ORDER_MARK), False
        cut = read.rfind(b"\n") + 1
        if cut:
            yield b"".join([*kept, memoryview(read)[:cut]])
            kept = []
        kept.append(read[cut:])
    rest = b"".join(kept)
    if rest:
        yield rest


def _lines(text: bytes) -> pa.Array:
    """Return the lines of a text, with their breaks."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == LINE_BREAK) + 1
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    offsets = np.append(0, ends).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )


def _without_breaks(lines: pa.Array) -> pa.Array:
    return pc.ascii_rtrim(lines.view(pa.string()), characters="\n").view(pa.binary())


def trimmed(lines: pa.Array) -> pa.Array:
    """Return lines without white space around them, UTF-8 or not."""
    # A view: a cast would check for UTF-8, which the verdict on each line does.
    return pc.ascii_trim(lines.view(pa.string()), characters=SPACE).view(pa.binary())


def on_one_line(checked: pa.Array) -> pa.Array:
    """Return checked JSON texts with spaces for their line breaks, as `jsontext.one_line`.

    Not before the check: a break inside a string makes a text invalid, a space does not.
    """
    # Over all their bytes: Arrow's search in each of them costs more than decoding it.
    _, _, content = checked.buffers()
    if content is None or not (np.frombuffer(content, np.uint8) < CONTROL_BELOW).any():
        return checked
    texts = checked.view(pa.string())
    for line_break in ("\n", "\r"):
        texts = pc.replace_substring(texts, line_break, " ")
    return texts.view(pa.binary())


def _stretches(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    """Return first row and length of each stretch of rows of one block."""
    rows = batch.num_rows
    if rows == 0:
        return []
    columns = [batch.column(name) for name in ("file", "block")]
    changed = pc.or_(*(pc.not_equal(column[1:], column[:-1]) for column in columns))
    cuts = [0, *(at + 1 for at in pc.indices_nonzero(changed).to_pylist()), rows]
    return [(low, high - low) for low, high in pairwise(cuts)]
