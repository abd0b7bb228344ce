"""The lines of a task, a block of a file at a time; files are read where they are conflated.

A line that Spark reads goes from its Java to a Python, which costs more than to decode it. So
Spark plans blocks alone (`BLOCKS`): it lists files and keeps them in its checkpoint, and a task
gets a name and two numbers. Only conflated rows pass Java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem

from tidegate.pipeline.columns.rows import PUBLISHED, arrow_schema, file_and_block, part_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BLOCKS = "file string, block long, end long"
"""A block of a file as a row: `file` and `block` (its first byte) as in PUBLISHED, and its end."""

PAGES = "page binary"
"""PUBLISHED rows, some thousand of them as one row of Spark: an Arrow stream.

To copy a row of nine columns into Java and out again costs more than all else that is done with it.
"""

# Large enough that a task's start is little beside it, small enough that tasks end together.
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
_BODY = _SCHEMA.get_field_index("body")


def blocks_of(files: DataFrame, file: Column, size: Column, tasks: int) -> DataFrame:
    """Return the blocks (`BLOCKS`) of local text files, shared among some tasks."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    found = files.select(file.alias("file"), size.alias("size")).where("size > 0")
    is_whole = F.col("file").rlike("|".join(rf"\{ending}$" for ending in COMPRESSED))
    step = F.when(is_whole, F.col("size")).otherwise(F.lit(BLOCK_BYTES))
    begins = F.explode(F.sequence(F.lit(0).cast("long"), F.col("size") - 1, step))
    cut = found.select("file", begins.alias("block"), (F.col("block") + step).alias("end"))
    # By hand: Spark puts whole files together, and a large one would be a single task's.
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

    For what works on rows: the lines pass Java then.
    """
    if not {"end", "page"} & set(messages.columns):
        return messages
    return messages.mapInArrow(_published, PUBLISHED)


def _published(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for part, _, piece in pieces(batches):
        count = len(piece)
        for name, value in zip(("file", "block"), file_and_block(part), strict=True):
            at = piece.schema.get_field_index(name)
            kind = piece.schema.field(at)
            piece = piece.set_column(at, kind, pa.repeat(pa.scalar(value, kind.type), count))
        yield piece


def pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield PUBLISHED rows in pieces of one block, as `lines_by_block`; `BLOCKS` are read here.

    Pages are opened here too. Of rows that are read only `body` is known, and may end with its
    line break.

    Raises:
        OSError: a file cannot be read; the text names it.
    """
    first = next(batches, None)
    if first is None:
        return
    together = chain([first], batches)
    if "end" not in first.schema.names:
        yield from lines_by_block(_opened(together) if "page" in first.schema.names else together)
        return
    for batch in together:
        for block in batch.to_pylist():
            part, row = part_of(block["file"], block["block"]), 0
            for text in _texts(block["file"].rpartition("\0")[2], block["block"], block["end"]):
                lines = _lines(text)
                yield part, row, lines
                row += len(lines)


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


def _texts(address: str, start: int, end: int) -> Iterator[bytes]:
    """Yield the text of a block, some whole lines at a time.

    A line belongs to the block in which it begins.
    """
    files, path = FileSystem.from_uri(address)
    try:
        if path.endswith(COMPRESSED):
            with files.open_input_stream(path) as stream:
                yield from _whole_lines(iter(lambda: stream.read(READ_BYTES), b""))
            return
        with files.open_input_file(path) as file:
            first, last = _line_from(file, start), _line_from(file, end)
            file.seek(first)
            sizes = (min(READ_BYTES, last - at) for at in range(first, last, READ_BYTES))
            yield from _whole_lines(map(file.read, sizes), has_mark=start == 0)
    except FileNotFoundError:
        raise  # which names its file
    except OSError as error:
        raise OSError(f"{path}: {error}") from None


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


def _lines(text: bytes) -> pa.RecordBatch:
    """Return the lines of a text as PUBLISHED rows."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == LINE_BREAK) + 1
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    offsets = np.append(0, ends).astype(np.int32)
    bodies = pa.Array.from_buffers(
        pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )
    columns = [pa.nulls(len(ends), kind) for kind in _SCHEMA.types]
    columns[_BODY] = bodies
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


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
