"""A topic is archived once and whole, and continued from what is there."""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

import pyarrow.dataset as ds
import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.pipeline.archive.archives import archive, files, positions, row, unheard
from tests.pipeline.archive.served import Served, gateway
from tests.pipeline.children import Child
from tests.pipeline.journals import Journals
from tests.support.deadlines import HANGS_S
from tests.support.rules import rule
from tidegate.clients.answers import Journal
from tidegate.clients.retry import PAUSE_FIRST_S
from tidegate.keys.archived import Part
from tidegate.pipeline.archive import journal as journal_module
from tidegate.pipeline.archive.archiving import Archiving
from tidegate.pipeline.archive.folder import TopicFolder, TopicShape
from tidegate.pipeline.archive.journal import JournalArguments, archive_topic, journal
from tidegate.pipeline.command import command
from tidegate.pipeline.errors import ArchiveUnusable, SourceLost, UsageInvalid
from tidegate.pipeline.operations.shutdown import CutOff, Stop
from tidegate.pipeline.operations.supervisor import RunOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


HELD_S = 3600


def arguments(folder: Path, address: str = "http://127.0.0.1:1", **given: Any) -> JournalArguments:
    asked: dict[str, Any] = {
        "topic": "ticks",
        "archive": folder,
        "gateway": address,
        "checkpoint": None,
        "interval": "1s",
        "compact": False,
        "options": RunOptions(master="local[2]", available_now=True),
    }
    return JournalArguments(**{**asked, **given})


@pytest.fixture
def served() -> Iterator[Served]:
    with gateway() as found:
        found.define("ticks", key=["/k"])
        yield found


@rule("archive-2")
@pytest.mark.spark
@pytest.mark.nightly
def test_a_batch_that_was_archived_but_not_noted_is_not_archived_again(
    spark: SparkSession, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = arguments(tmp_path, served.address)
    publish = TopicFolder.publish

    def killed_after(self: TopicFolder, name: str, part: Part) -> None:
        publish(self, name, part)
        raise RuntimeError("killed")

    served.publish("ticks", {"k": "a", "n": 1}, {"k": "b", "n": 2})
    with monkeypatch.context() as patched:
        patched.setattr(TopicFolder, "publish", killed_after)
        with pytest.raises(Exception, match="killed"):
            archive_topic(asked, Stop(), unheard, spark)
    served.remove("ticks", '["a"]')
    served.publish("ticks", {"k": "a", "n": 3})
    assert archive_topic(asked, Stop(), unheard, spark).messages == 2
    assert positions(TopicFolder(tmp_path, "ticks")) == [1, 2, 3, 4]
    frame = spark.read.parquet(str(tmp_path)).where("topic = 'ticks'").orderBy("position")
    assert [(row.position, row.value, row.reason) for row in frame.collect()] == [
        (1, '{"k":"a","n":1}', None),
        (2, '{"k":"b","n":2}', None),
        (3, None, "deleted"),
        (4, '{"k":"a","n":3}', None),
    ]


@rule("archive-2")
@pytest.mark.nightly
@pytest.mark.spark
def test_a_topic_is_archived_once_whatever_happens_in_between(
    spark: SparkSession, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before and after a file is seen, without its checkpoint, anew."""
    reports: list[str] = []
    asked = arguments(tmp_path / "kept", served.address)
    folder = TopicFolder(tmp_path / "kept", "ticks")
    publish, runs = TopicFolder.publish, set[str]()

    def killed_before(self: TopicFolder, name: str, part: Part) -> None:
        runs.add(name.partition(".")[0])
        raise RuntimeError("killed")

    def killed_after(self: TopicFolder, name: str, part: Part) -> None:
        runs.add(name.partition(".")[0])
        publish(self, name, part)
        raise RuntimeError("killed")

    served.publish("ticks", {"k": "a", "n": 1}, {"k": "b", "n": 2})
    for killed in (killed_before, killed_after):
        with monkeypatch.context() as patched:
            patched.setattr(TopicFolder, "publish", killed)
            with pytest.raises(Exception, match="killed"):
                archive_topic(asked, Stop(), reports.append, spark)
        served.remove("ticks", '["a"]')
        served.publish("ticks", {"k": "a", "n": 3})
    assert len(runs) == 2, "a task that outlives its driver writes to no file of the next one"
    totals = archive_topic(asked, Stop(), reports.append, spark)
    assert totals.messages == 4
    assert positions(folder) == [1, 2, 3, 4, 5, 6]
    assert reports[-1].startswith("journal.ticks: 1 batch, 4 messages in, 4 out, ")
    other = arguments(tmp_path / "kept", served.address, checkpoint=tmp_path / "another")
    served.publish("ticks", {"k": "c", "n": 4})
    assert archive_topic(other, Stop(), reports.append, spark).messages == 1
    served.drop("ticks")
    served.define("ticks", key=["/k"])
    served.publish("ticks", {"k": "z"})
    archive_topic(asked, Stop(), reports.append, spark)
    assert positions(folder) == [1, 2, 3, 4, 5, 6, 7, 1]
    plainly_read(spark, tmp_path / "kept")


@rule("archive-2")
@pytest.mark.nightly
@pytest.mark.spark
def test_a_kill_in_the_midst_of_a_batch_neither_loses_nor_doubles(
    spark: SparkSession, journals: Journals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kill -9` of the command while a task of its has read half of a batch."""
    messages, stands_at = 6_000, "e1-5000"
    read, standing = Journals.read, threading.Event()

    async def held(self: Journals, request: Request) -> Response:
        if request.query_params["from"] == stands_at and not standing.is_set():
            standing.set()
            await asyncio.sleep(HELD_S)
        answer = await read(self, request)
        timed = bytes(answer.body).replace(b'"op":', b'"timestamp":1795000000000,"op":')
        return Response(timed, answer.status_code, media_type=answer.media_type)

    monkeypatch.setattr(Journals, "read", held)
    folder = TopicFolder(tmp_path, "ticks")
    journals.topic("ticks", [b"%d" % n for n in range(messages)])
    words = [sys.executable, "-P", "-m", "tidegate.pipeline", "journal", f"--to={tmp_path}"]
    words += [f"--gateway={journals.address}", "--master=local[1]", "--", "ticks"]
    with Child(words, tmp_path) as child:
        child.await_until(standing.is_set, HANGS_S)
        child.kill()
    assert positions(folder) == []
    archive_topic(arguments(tmp_path, journals.address), Stop(), unheard, spark)
    assert positions(folder) == [*range(1, messages + 1)]


@rule("archive-2", "pipeline-9")
@pytest.mark.nightly
@pytest.mark.spark
def test_an_archiver_survives_failures_and_another_epoch_of_its_topic(
    spark: SparkSession, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, and a topic that is deleted and made again meanwhile."""
    stop, said, seen = Stop(), SimpleQueue[str](), SimpleQueue[int]()
    publish, troubles = TopicFolder.publish, iter([OSError(errno.ENOSPC, "no room")])

    def publish_or_fail(self: TopicFolder, name: str, part: Part) -> None:
        for trouble in troubles:
            raise trouble
        publish(self, name, part)
        seen.put(part.last)

    monkeypatch.setattr(TopicFolder, "publish", publish_or_fail)
    served.publish("ticks", {"k": "a"}, {"k": "b"})
    asked = arguments(tmp_path, served.address, interval="50ms", options=RunOptions("local[2]"))
    with ThreadPoolExecutor(1) as aside:
        archiving = aside.submit(archive_topic, asked, stop, said.put, spark)
        try:
            await_line(said, "no room; it is started again in 1 s")
            assert seen.get(timeout=HANGS_S) == 2
            served.publish("ticks", {"k": "c"})
            assert seen.get(timeout=HANGS_S) == 3
            served.drop("ticks")
            served.define("ticks", key=["/k"])
            served.publish("ticks", {"k": "z"})
            await_line(said, f"ticks has begun again: its epoch is {served.epoch('ticks')}")
            assert seen.get(timeout=HANGS_S) == 1
            while '["journal.ticks"]' not in served.records("tidegate.pipelines"):
                await_line(said, "journal.ticks: ")  # each also goes to the gateway
        finally:
            stop.ask()
        assert archiving.result().messages == 4
    assert positions(TopicFolder(tmp_path, "ticks")) == [1, 2, 3, 1]
    await_line(said, "stopping …")
    await_line(said, "ended")


def await_line(said: SimpleQueue[str], words: str) -> None:
    """Return when a line with these words has been said."""
    while words not in said.get(timeout=HANGS_S):
        pass


def plainly_read(spark: SparkSession, archive_folder: Path) -> None:
    """What readers see that know nothing of us: Spark, pyarrow, the planner."""
    from tidegate.pipeline.columns.blocks import as_published
    from tidegate.pipeline.columns.history import read_history

    frame = spark.read.parquet(str(archive_folder))
    assert {"topic", "date"} <= set(frame.columns)
    assert frame.where("reason = 'deleted' AND value IS NULL").count() == 2
    assert frame.where("topic = 'ticks'").count() == 8
    table = ds.dataset(archive_folder, format="parquet", partitioning="hive").to_table()
    assert table.num_rows == 8
    lines = as_published(read_history(spark, archive_folder / "topic=ticks")).collect()
    assert as_published(read_history(spark, archive_folder)).count() == len(lines)
    assert [line.body for line in lines if line.body is None] == []
    assert len(lines) == 6
    assert all(line.time_ms > 0 for line in lines)


@pytest.mark.nightly
@pytest.mark.spark
def test_lost_messages_are_an_error_and_never_skipped(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.define("short", history={"messages": 2})
    asked = arguments(tmp_path, served.address, topic="short")
    served.publish("short", {"n": 1}, {"n": 2}, {"n": 3})
    archive_topic(asked, Stop(), unheard, spark)
    assert positions(TopicFolder(tmp_path, "short")) == [2, 3]
    served.publish("short", *({"n": n} for n in range(4, 9)))
    wanted = "no longer holds 3 messages .*, positions 4 to 6: .*`history`"
    with pytest.raises(SourceLost, match=wanted):
        archive_topic(asked, Stop(), unheard, spark)
    folder = TopicFolder(tmp_path, "short")
    folder.file(folder.parts()[-1]).unlink()
    with pytest.raises((ArchiveUnusable, SourceLost)):
        archive_topic(asked, Stop(), unheard, spark)


def test_small_files_are_put_together_without_spark_or_gateway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = TopicFolder(tmp_path, "ticks")
    archive(folder, [row(1)], [row(2)], [row(3)])
    assert journal(arguments(tmp_path, compact=True)) == 0
    assert capsys.readouterr().out == "ticks: 2 fewer files\n"
    assert len(files(folder)) == 1


@pytest.mark.parametrize(
    ("given", "code", "sentence"),
    [
        ({"topic": "a/b"}, 2, "is not the name of a topic"),
        ({"interval": "0s"}, 2, "--interval: expected 1ms to 1d"),
        ({"compact": True}, 2, "has no archive of topic ticks"),
    ],
)
def test_a_wrong_argument_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    given: dict[str, Any],
    code: int,
    sentence: str,
) -> None:
    assert journal(arguments(tmp_path / "none", **given)) == code
    assert sentence in capsys.readouterr().err
    with pytest.raises(UsageInvalid):
        archive_topic(arguments(tmp_path / "none", **given), Stop(), unheard)


def test_an_outage_is_reported_before_spark_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipeline.connection.PATIENCE_S", 1.2 * PAUSE_FIRST_S)
    assert journal(arguments(tmp_path)) == 3
    out, err = capsys.readouterr()
    first, last = err.splitlines()
    assert first.startswith("tidegate: cannot reach the gateway at http://127.0.0.1:1: ")
    assert first.endswith("; trying again for 0 s")
    assert last.startswith("tidegate: cannot reach the gateway")
    assert out == ""


@pytest.mark.parametrize("hangs_at", [1, 2])
def test_a_gateway_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs_at: int
) -> None:
    """At first, and where it is asked again between two starts."""
    stop, asked = Stop(), []

    class Hanging:
        def __init__(self, *_: object) -> None:
            asked.append(self)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def ends(self) -> Journal:
            if len(asked) == hangs_at:
                signal.raise_signal(signal.SIGINT)
            return Journal("e1", None, None)

        def definition(self) -> dict[str, Any]:
            return {"key": ["/k"], "type": "json"}

    def run(archiving: Archiving, *_: Any) -> None:
        archiving.mends(SourceLost("ticks: gone"))

    monkeypatch.setattr(journal_module, "open_journal", Hanging)
    monkeypatch.setattr(journal_module, "_run", run)
    with stop.listening(), pytest.raises(CutOff) as cut:
        archive_topic(arguments(tmp_path), stop, unheard)
    assert cut.value.exit_code == 130
    assert len(asked) == hangs_at


@pytest.mark.parametrize("fields", [{"key": ["/k", "/n"]}, {"type": "text"}, {}])
def test_the_archive_keeps_the_key_and_the_type_of_its_topic(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    served.define("shaped", **fields)
    monkeypatch.setattr(journal_module, "_run", lambda *_: None)
    archive_topic(arguments(tmp_path, served.address, topic="shaped"), Stop(), unheard)
    shape = TopicShape(fields.get("key", []), fields.get("type", "json"))
    assert TopicFolder(tmp_path, "shaped").shape() == shape


def test_a_second_archiver_is_refused_before_spark_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with TopicFolder(tmp_path, "ticks").locked():
        assert journal(arguments(tmp_path)) == 78
    assert "another process writes this archive" in capsys.readouterr().err


def test_the_command_knows_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["journal", "--to=x", "--", "a/b"]) == 2
    assert capsys.readouterr().err == "tidegate: 'a/b' is not the name of a topic\n"
