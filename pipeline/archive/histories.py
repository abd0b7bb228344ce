"""What can be published again: an archive, NDJSON, Parquet; files in the order of their names."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from keys.archived import topic_folder
from keys.path import getter
from pipeline.archive.folder import TopicFolder
from pipeline.archive.reading import ROWS_AT_ONCE, archived
from pipeline.archive.recorded import History, Place, Recorded, RecordedClock, Window
from pipeline.columns.history import SPACE, require_history
from pipeline.columns.intervals import MILLISECOND_NS
from pipeline.columns.times import TimeField
from pipeline.errors import HistoryInvalid, HistoryUnreadable, UsageInvalid

Line = tuple[str, bytes, int | None]
"""The name of a file, a message in it, and its time if that stands beside it."""


def open_history(path: Path, topic: str, source: str | None, time: TimeField | None) -> History:
    """An archive (its topic `source`, by default `topic` or the only one), or other files.

    Raises:
        HistoryUnreadable, UsageInvalid: there is none, or it is not clear which.
    """
    folders = _topic_folders(path)
    if folders:
        return _of_archive(_chosen(path, folders, topic, source))
    if source is not None:
        raise UsageInvalid(f"--source-topic: {path} is no archive")
    is_parquet = require_history(path)
    files = _files(path)
    has_times = time is not None or (is_parquet and _has_times(files[0]))

    def messages(behind: Place, window: Window) -> Iterator[Recorded]:
        found = parquet_lines(files) if is_parquet else text_lines(files)
        return _numbered(found, time, behind, window)

    return History(path.name, has_times, messages)


def text_lines(files: Sequence[Path]) -> Iterator[Line]:
    """Lines of NDJSON, gzipped or not; blank ones are passed over.

    Raises:
        HistoryUnreadable: a file cannot be read.
    """
    for path in files:
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
                for line in lines:
                    if text := line.strip(SPACE.encode()):
                        yield path.name, text, None
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise HistoryUnreadable(f"{path}: is not a whole gzip file") from None
        except OSError as error:
            raise HistoryUnreadable(f"{path}: {error.strerror or error}") from None


def parquet_lines(files: Sequence[Path]) -> Iterator[Line]:
    """Rows of Parquet: the column `value` if that is a text, else the row as a JSON object.

    Raises:
        HistoryUnreadable: a file cannot be read.
    """
    encode = msgspec.json.Encoder(decimal_format="number").encode
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
                    has_value = _has_value(batch.schema)
                    for row in batch.to_pylist():
                        value = row.get("value")
                        if not has_value:
                            text = encode({name: it for name, it in row.items() if it is not None})
                            yield path.name, text, None
                        elif value is not None:
                            text = value if isinstance(value, bytes) else value.encode()
                            yield path.name, text, row.get("timestamp_ms")
        except (pa.ArrowException, OSError) as error:
            raise HistoryUnreadable(f"{path}: cannot be read as Parquet: {error}") from None


def _numbered(
    lines: Iterator[Line], time: TimeField | None, behind: Place, window: Window
) -> Iterator[Recorded]:
    clock = RecordedClock()
    for number, (name, text, time_ms) in enumerate(lines, 1):
        if time is not None:
            time_ms = _time_ms(text, time, name, number)
        clock_ms = clock.at(time_ms or 0)
        if window.is_over(clock_ms):
            return
        if number > behind.position and window.has_begun(clock_ms):
            yield Recorded(Place("", number), clock_ms, None, text)


def _time_ms(text: bytes, time: TimeField, name: str, number: int) -> int:
    try:
        member = getter(time.path.steps)(text)
        return time.ns(msgspec.json.decode(member or b"null")) // MILLISECOND_NS
    except (ValueError, msgspec.MsgspecError):
        raise HistoryInvalid(f"{name}, message {number}: no time in {time.path}") from None


def _topic_folders(path: Path) -> dict[str, TopicFolder]:
    """The topics of an archive; a topic's own folder is one as well."""
    prefix = topic_folder("")
    found = [path] if path.name.startswith(prefix) else sorted(path.glob(f"{prefix}*"))
    names = [(each, each.name.removeprefix(prefix)) for each in found]
    return {name: TopicFolder(each.parent, name) for each, name in names}


def _chosen(
    path: Path, folders: dict[str, TopicFolder], topic: str, source: str | None
) -> TopicFolder:
    wanted = source or (topic if topic in folders or len(folders) > 1 else next(iter(folders)))
    if wanted in folders:
        return folders[wanted]
    names = ", ".join(folders)[:200]
    if source is None:
        raise UsageInvalid(f"--source-topic: {path} has the topics {names}: say which")
    raise UsageInvalid(f"--source-topic: {path} has no such topic; it has {names}")


def _of_archive(folder: TopicFolder) -> History:
    if not folder.parts():
        raise HistoryUnreadable(f"{folder.path}: there is nothing in this archive")
    name = folder.path.name.removeprefix(topic_folder(""))
    return History(name, True, lambda behind, window: archived(folder, behind, window))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = [each for each in path.rglob("*") if each.is_file()]
    return sorted(
        each for each in found if not any(part[0] in "._" for part in each.relative_to(path).parts)
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
