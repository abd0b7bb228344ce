"""Rows are lines of a file, whole whatever is killed, which is renamed at its bounds."""

from __future__ import annotations

import resource
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.pipeline.forward.forwarding import brief, forwarding
from tests.pipeline.ingest.ingesting import eventually
from tests.support.commands import serving_here
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.errors import EndpointUnavailable, InUse
from tidegate.pipeline.forward.sinks.file import FileSink, FileTarget
from tidegate.pipeline.forward.target import Row

pytestmark = pytest.mark.system
FILE = """
[forward.prices]
source = {topic = "prices", options = "conflation=50ms"}
sink = {kind = "file", path = "out.ndjson"}
"""


def row(text: bytes) -> Row:
    return Row("publish", {"value": msgspec.Raw(text)})


def opened(path: Path, bytes_max: int | None = None, seconds_max: int | None = None) -> FileTarget:
    target = FileTarget(FileSink(path, bytes_max, seconds_max))
    target.open()
    return target


def lines(path: Path) -> list[Any]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def test_rows_removals_and_a_resume_are_lines(tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": 1}, {"k": 2}])
        with forwarding(tmp_path, FILE, address):
            eventually(lambda: out.exists() and len(lines(out)), 3)
            gateway.delete_records("prices", record_key=2)
            eventually(lambda: len(lines(out)), 4)
        gateway.publish("prices", {"k": 3})
        with forwarding(tmp_path, FILE, address):
            eventually(lambda: len(lines(out)), 5)
    assert [brief(each) for each in lines(out)] == [
        ("reset", None),
        ("snapshot", {"k": 1}),
        ("snapshot", {"k": 2}),
        ("delete", [2]),
        ("publish", {"k": 3}),
    ]


@pytest.mark.parametrize("cut", [b"", b'{"value":', b'{"value":"' + b"x" * 200_000])
def test_a_line_that_a_kill_has_cut_is_gone_at_the_next_start(tmp_path: Path, cut: bytes) -> None:
    out = tmp_path / "out.ndjson"
    target = opened(out)
    target.write([row(b"1"), row(b"2")])
    target.close()
    with out.open("ab") as file:
        file.write(cut)
    target = opened(out)
    target.write([row(b"3")])
    target.close()
    assert lines(out) == [{"value": 1}, {"value": 2}, {"value": 3}]


def test_a_file_is_renamed_before_it_exceeds_its_bytes(tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    target = opened(out, bytes_max=len(b'{"value":10}\n') * 4)
    for at in range(10, 30):
        target.write([row(b"%d" % at)])
    target.close()
    files = [*sorted(tmp_path.glob("out-*.ndjson")), out]
    assert [len(lines(each)) for each in files] == [4, 4, 4, 4, 4]
    assert [each["value"] for path in files for each in lines(path)] == list(range(10, 30))


def test_a_file_is_renamed_within_a_batch(tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    target = opened(out, bytes_max=len(b'{"value":10}\n') * 4)
    target.write([row(b"%d" % at) for at in range(10, 20)])
    target.write([row(b"%d" % at) for at in range(20, 30)])
    target.close()
    files = [*sorted(tmp_path.glob("out-*.ndjson")), out]
    assert [len(lines(each)) for each in files] == [4, 4, 4, 4, 4]
    assert [each["value"] for path in files for each in lines(path)] == list(range(10, 30))


def test_a_file_is_renamed_when_it_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    # The module's own name for it: servers in threads of other tests need the real clock.
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("tidegate.pipeline.forward.sinks.file.time", clock)
    out = tmp_path / "out.ndjson"
    target = opened(out, seconds_max=60)
    for after in (100.0, 59.0, 1.0):  # the first line begins the time, not the empty file
        now[0] += after
        target.write([row(b"%d" % now[0])])
    target.close()
    [old] = tmp_path.glob("out-*.ndjson")
    assert [len(lines(old)), len(lines(out))] == [2, 1]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        EndpointUnavailable, match=r"none/out.ndjson cannot be written: No such file"
    ):
        opened(tmp_path / "none" / "out.ndjson")


def test_a_second_forward_to_a_file_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    first = opened(out, bytes_max=len(b'{"value":1}\n'))
    with out.open("ab") as file:
        file.write(b'{"value":')  # what the first one is writing
    with (
        closing(FileTarget(FileSink(out, None, None))) as second,
        pytest.raises(InUse, match=r"another tidegate forward writes to .*out\.ndjson"),
    ):
        second.open()
    assert out.read_bytes() == b'{"value":'
    out.write_bytes(b"")
    first.write([row(b"1"), row(b"2")])  # renamed, and taken again
    with (
        closing(FileTarget(FileSink(out, None, None))) as second,
        pytest.raises(InUse),
    ):
        second.open()
    first.close()
    opened(out).close()


def test_a_disk_that_is_full_is_a_sentence_also_when_the_file_is_closed(tmp_path: Path) -> None:
    target = opened(tmp_path / "out.ndjson")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with (
            pytest.raises(EndpointUnavailable, match="ndjson cannot be written: File too large"),
            closing(target),
        ):
            target.write([row(b"1" * 100)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
