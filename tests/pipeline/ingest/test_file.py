"""Lines of files that grow, are rotated, emptied and begun again: each is read once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pipeline.ingest.ingesting import connector_of, read_until
from tidegate.pipeline.errors import EndpointUnavailable, SourceLost
from tidegate.pipeline.ingest.sources import file as file_module


class Reader:
    """A connector over restarts, and the numbers that a gateway would have."""

    def __init__(self, folder: Path, pattern: str = "app.ndjson*", start: str = "epoch") -> None:
        self.folder = folder
        self.numbers: dict[str, int] = {}
        self.table = {"kind": "file", "path": pattern, "from": start}
        self.connector = connector_of(self.table, self.folder)
        self.connector.open(self.numbers.get)

    def close(self) -> None:
        self.connector.close()

    def again(self) -> None:
        """Begin another run."""
        self.close()
        self.connector = connector_of(self.table, self.folder)
        self.connector.open(self.numbers.get)

    def lines(self) -> list[str]:
        """What can be read now."""
        found: list[str] = []
        while (batch := self.connector.read(0.0)) is not None:
            for each in batch.records:
                assert each.payload is not None
                assert each.number is not None
                assert each.number > self.numbers.get(batch.partition, -1)
                self.numbers[batch.partition] = each.number
                found.append(each.payload.decode())
        return found


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


OpenReader = Callable[..., Reader]


def open_files(path: Path) -> int:
    """How often this process has a file open."""
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))  # noqa: PTH208 - the folder changes while it is listed
    return sum(os.path.realpath(link) == str(path) for link in links)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return tmp_path / "app.ndjson"


@pytest.fixture
def open_reader(tmp_path: Path) -> Iterator[OpenReader]:
    readers: list[Reader] = []

    def opened(*given: str) -> Reader:
        readers.append(Reader(tmp_path, *given))
        return readers[-1]

    yield opened
    for reader in readers:
        reader.close()


def test_lines_are_read_as_they_are_finished(app: Path, open_reader: OpenReader) -> None:
    reader = open_reader()
    assert reader.lines() == []  # there is no such file yet
    append(app, "1", "", "2")
    assert reader.lines() == ["1", "2"]
    with app.open("a") as file:
        file.write("3")
        file.flush()
        assert reader.lines() == []
        file.write("3\r\n")
    assert reader.lines() == ["33"]
    assert reader.lines() == []
    append(app, "4")
    reader.again()
    append(app, "5")
    assert reader.lines() == ["4", "5"]


def test_a_file_that_was_renamed_is_read_to_its_end_first(
    app: Path, open_reader: OpenReader
) -> None:
    append(app, "1")
    for pattern in ("app.ndjson*", "app.ndjson"):
        reader = open_reader(pattern)
        assert reader.lines()[:1] == ["1"]
        with app.open("a") as late:
            rotated = app.rename(app.with_name(f"app.ndjson.{len(pattern)}"))
            append(app, "new")
            late.write("late\n")
            late.flush()
            os.utime(rotated, (1, 1))
            assert reader.lines() == ["late", "new"]
        rotated.unlink()
        app.unlink()
        append(app, "1")


def test_a_rotation_between_two_runs_loses_nothing_with_a_pattern(
    app: Path, open_reader: OpenReader
) -> None:
    append(app, "1", "2")
    reader = open_reader()
    assert reader.lines() == ["1", "2"]
    append(app, "3")
    os.utime(app.rename(app.with_name("app.ndjson.1")), (1, 1))
    append(app, "4")
    reader.again()
    assert reader.lines() == ["3", "4"]


def test_a_file_that_was_emptied_begins_again_if_its_first_line_differs(
    app: Path, open_reader: OpenReader
) -> None:
    append(app, "1", "2")
    reader = open_reader()
    assert reader.lines() == ["1", "2"]
    app.write_text("")
    assert reader.lines() == []
    append(app, "10", "11")
    assert reader.lines() == ["10", "11"]
    app.write_text("20\n21\n22\n")
    assert reader.lines() == ["20", "21", "22"]
    app.write_text("20\n")
    with pytest.raises(SourceLost, match=r"app.ndjson has 3 bytes, but 9 of them were read"):
        reader.again()


def test_a_file_that_was_emptied_and_has_the_same_first_line_ends_the_source(
    app: Path, open_reader: OpenReader
) -> None:
    append(app, "header", "1", "2")
    reader = open_reader()
    assert reader.lines() == ["header", "1", "2"]
    app.write_text("header\n3\n")
    with pytest.raises(SourceLost, match=r"app.ndjson has 9 bytes, but 11 of them were read"):
        reader.lines()


def test_from_now_begins_after_the_last_line_of_what_is_there(
    app: Path, open_reader: OpenReader
) -> None:
    append(app, "1", "2")
    with app.open("a") as file:
        file.write("3")
    reader = open_reader("app.ndjson*", "now")
    assert reader.lines() == []
    append(app, "3")
    append(app.with_name("app.ndjson.other"), "all")
    assert sorted(reader.lines()) == ["33", "all"]


def test_idle_files_are_closed_and_opened_again_when_they_grow(
    app: Path, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "IDLE_S", 0.0)
    append(app, "1")
    reader = open_reader()
    found = reader.lines()
    for at in range(3):
        assert reader.connector.read(0.0) is None
        assert open_files(app) == 0
        append(app, f"more {at}")
        found += reader.lines()
    assert found == ["1", "more 0", "more 1", "more 2"]


def test_another_file_of_the_size_of_an_idle_one_is_read(
    app: Path, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "IDLE_S", 0.0)
    append(app, "1")
    reader = open_reader()
    assert reader.lines() == ["1"]
    # In place of it: a file system may give the new file the inode of the old one.
    app.write_text("2\n")
    os.utime(app, ns=(0, app.stat().st_mtime_ns + 1))
    assert reader.lines() == ["2"]


def test_a_file_that_ends_within_a_line_is_closed_when_it_is_idle(
    app: Path, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "IDLE_S", 0.0)
    app.write_text("1\n2")
    reader = open_reader()
    assert reader.lines() == ["1"]
    assert reader.connector.read(0.0) is None
    assert open_files(app) == 0
    append(app, "3")
    assert reader.lines() == ["23"]


def test_a_batch_is_bounded_and_says_how_much_follows(
    app: Path, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "RECORDS_MAX", 4)
    append(app, *map(str, range(10, 20)))
    connector = open_reader().connector
    batches = read_until(connector, 10)
    assert [(len(each.records), each.lag) for each in batches] == [(4, 6), (4, 2), (2, 0)]
    assert batches[1].records[0].position == "app.ndjson, byte 12"


def test_a_line_without_end_ends_the_source(
    app: Path, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "LINE_BYTES_MAX", 10)
    append(app, "1", "x" * 11)
    connector = open_reader().connector
    with pytest.raises(SourceLost, match="the line at byte 2 has more than 10 bytes"):
        connector.read(0.0)


def test_what_cannot_be_read_is_a_sentence(
    app: Path, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(app, "1")

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(app))

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(EndpointUnavailable, match=r"app.ndjson: Permission denied"):
        open_reader()
