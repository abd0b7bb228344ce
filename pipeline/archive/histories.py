"""Histories to publish again: archives, NDJSON, Parquet; files in the order of their names."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.keys.archived import topic_folder
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json
from tidegate.keys.path import getter
from tidegate.pipeline.archive.folder import TopicFolder
from tidegate.pipeline.archive.recorded import (
    ROWS_AT_ONCE,
    History,
    Recorded,
    RecordedClock,
    RecordedPlace,
    SourceLocation,
    Window,
    read_archive,
)
from tidegate.pipeline.columns.blocks import SPACE
from tidegate.pipeline.columns.history import check_history, history_files, is_parquet
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.errors import HistoryInvalid, HistoryUnreadable, UsageInvalid
from tidegate.pipeline.files.objects import SHOWN_MAX
from tidegate.pipeline.intervals import MILLISECOND_NS

Line = tuple[SourceLocation, bytes, int | None]
"""Where the message was found, its text, and its time if a column has it."""


def open_history(path: Path, topic: str, source: str | None, time: TimeField | None) -> History:
    """Open an archive (its topic `source`, else `topic` or the only one), or other files.

    Raises:
        HistoryUnreadable, UsageInvalid: there is none, or it is not clear which.
    """
    folders = _topic_folders(path)
    if folders:
        return _of_archive(_chosen(path, folders, topic, source))
    if source is not None:
        raise UsageInvalid(f"--source-topic: {path} is not an archive")
    check_history(path)
    has_columns, files = is_parquet(path), history_files(path)
    has_times = time is not None or (has_columns and _has_times(files[0]))

    def messages(after: RecordedPlace, window: Window) -> Iterator[Recorded]:
        found = parquet_lines(files) if has_columns else text_lines(files)
        return _numbered(found, time, after, window)

    return History(path.name, has_times, messages)


def text_lines(files: Sequence[Path]) -> Iterator[Line]:
    """Yield the lines of NDJSON, gzipped or not, without blank ones.

    Raises:
        HistoryUnreadable: a file cannot be read.
    """
    for path in files:
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if text := line.rstrip(SPACE.encode()):
                        yield SourceLocation(path.name, "line", number), text, None
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise HistoryUnreadable(f"{path}: is not a whole gzip file") from None
        except OSError as error:
            raise HistoryUnreadable(f"{path}: {error.strerror or error}") from None


def parquet_lines(files: Sequence[Path]) -> Iterator[Line]:
    """Yield rows of Parquet: the column `value` if it is a text, else the row as a JSON object.

    Raises:
        HistoryUnreadable: a file cannot be read.
        HistoryInvalid: a text in it is not UTF-8, or a number is NaN or infinite.
    """
    # As text, a decimal would be a JSON string, which no aggregate adds up.
    encode = msgspec.json.Encoder(decimal_format="number").encode
    for path in files:
        for location, row, has_value in _rows(path):
            value = row.get("value")
            if not has_value:
                yield location, encode(_object(location, row)), None
            elif value is not None:
                text = value if isinstance(value, bytes) else value.encode()
                yield location, text, row.get("timestamp_ms")


def _object(location: SourceLocation, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without its null fields.

    Raises:
        HistoryInvalid: it has NaN or an infinity, which would be published as null.
    """
    for name, value in row.items():
        if _is_beyond_json(value):
            raise HistoryInvalid(f"{location}: {name[:SHOWN_MAX]} is NaN or infinite")
    return {name: value for name, value in row.items() if value is not None}


def _is_beyond_json(value: object) -> bool:
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(map(_is_beyond_json, value.values()))
        case list() | tuple():
            return any(map(_is_beyond_json, value))
    return False


def _rows(path: Path) -> Iterator[tuple[SourceLocation, dict[str, Any], bool]]:
    """Yield each row, and whether its message is in the column `value`."""
    before = 0
    try:
        with pq.ParquetFile(path) as file:
            has_value = _has_value(file.schema_arrow)
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
                for number, row in enumerate(_decoded(batch, path.name, before), before + 1):
                    yield SourceLocation(path.name, "row", number), row, has_value
                before += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise HistoryUnreadable(f"{path}: cannot be read as Parquet: {error}") from None


def _decoded(batch: pa.RecordBatch, name: str, before: int) -> list[dict[str, Any]]:
    """Return the rows of a batch; `before` is the number of rows ahead of it, for errors."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except UnicodeDecodeError:
        # Arrow does not say which row it was, so look for it one by one: this ends the command.
        bad = next(at for at in range(batch.num_rows) if not _is_text(batch.slice(at, 1)))
        location = SourceLocation(name, "row", before + bad + 1)
        raise HistoryInvalid(f"{location}: a text is not valid UTF-8") from None
    return rows


def _is_text(row: pa.RecordBatch) -> bool:
    try:
        row.to_pylist()
    except UnicodeDecodeError:
        return False
    return True


def _numbered(
    lines: Iterator[Line], time: TimeField | None, after: RecordedPlace, window: Window
) -> Iterator[Recorded]:
    clock = RecordedClock()
    for number, (location, text, time_ms) in enumerate(lines, 1):
        # Earlier ones are read too: the clock of later ones follows from their times.
        _check(location, text)
        if time is not None:
            time_ms = _time_ms(text, time, location)
        clock_ms = clock.at(time_ms or 0)
        if window.is_over(clock_ms):
            return
        if number > after.position and window.has_begun(clock_ms):
            yield Recorded(location, RecordedPlace("", number), clock_ms, None, text)


def _check(location: SourceLocation, text: bytes) -> None:
    """Refuse a text that is not one JSON value: in an envelope it could end the envelope."""
    try:
        check_json(text)
    except JsonInvalid as error:
        at = "" if error.position is None else f", at byte {error.position}"
        raise HistoryInvalid(f"{location}: {error.detail}{at}") from None


def _time_ms(text: bytes, time: TimeField, location: SourceLocation) -> int:
    try:
        found = getter(time.path.steps)(text)
        return time.ns(msgspec.json.decode(found or b"null")) // MILLISECOND_NS
    except (ValueError, msgspec.MsgspecError):
        raise HistoryInvalid(f"{location}: no time in {time.path}") from None


def _topic_folders(path: Path) -> dict[str, TopicFolder]:
    """Return the topics of an archive; the folder of one topic counts as an archive too."""
    prefix = topic_folder("")
    # `topic=NAME`, as Hive partitions a table, so that Spark and others find a column in it.
    found = [path] if path.name.startswith(prefix) else sorted(path.glob(f"{prefix}*"))
    names = [(each, each.name.removeprefix(prefix)) for each in found]
    return {name: TopicFolder(each.parent, name) for each, name in names}


def _chosen(
    path: Path, folders: dict[str, TopicFolder], topic: str, source: str | None
) -> TopicFolder:
    # A topic folder without days was locked once and never written.
    filled = {name: folder for name, folder in folders.items() if folder.days()} or folders
    wanted = source or (topic if topic in filled or len(filled) > 1 else next(iter(filled)))
    if wanted in folders:
        return folders[wanted]
    names = ", ".join(filled)[:200]
    if source is None:
        raise UsageInvalid(f"--source-topic: {path} has the topics {names}: say which")
    raise UsageInvalid(f"--source-topic: {path} has no such topic; it has {names}")


def _of_archive(folder: TopicFolder) -> History:
    if not folder.parts():
        raise HistoryUnreadable(f"{folder.path}: there is nothing in this archive")
    name = folder.path.name.removeprefix(topic_folder(""))
    return History(
        name, True, lambda after, window: read_archive(folder, after, window), folder.shape()
    )


def _has_times(path: Path) -> bool:
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise HistoryUnreadable(f"{path}: cannot be read as Parquet: {error}") from None
    return _has_value(schema) and "timestamp_ms" in schema.names


def _has_value(schema: pa.Schema) -> bool:
    if "value" not in schema.names:
        return False
    kind = schema.field("value").type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_text or pa.types.is_binary(kind))
