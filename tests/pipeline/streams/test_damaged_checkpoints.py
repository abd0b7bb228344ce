"""A checkpoint that was hurt: an explicit failure or nothing lost, never messages skipped (F27)."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.setups.gateway import CannotRun, small_disk
from tests.pipeline.journals import Journals, JournalServer, Topic
from tests.support.outside import require
from tests.support.rules import rule
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.errors import CheckpointUnusable, PipelineError, from_spark
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.nightly, pytest.mark.spark]

BEFORE, AFTER, A_BATCH = 90, 30, 30
SOURCES = {
    "topic": 'source = {{kind = "tidegate", topic = "raw"}}\nrows_per_batch = 30',
    "files": 'source = {{kind = "files", path = "{landing}/*.ndjson"}}\nfiles_per_batch = 1',
}
Damage = Callable[[Path], None]
"""What is done to a file or folder of a checkpoint."""


@dataclass
class CheckpointedStream:
    """A stream of unique keys: what was published, its folder, and what the sink has."""

    spark: SparkSession
    journals: Journals
    folder: Path
    landing: Path
    kind: str

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoints" / "s"

    def publish(self, first: int, beyond: int) -> None:
        """To the topic, and as files of a batch each."""
        for start in range(first, beyond, A_BATCH):
            numbers = range(start, min(start + A_BATCH, beyond))
            lines = [b'{"k":%d,"n":%d}' % (n, n) for n in numbers]
            self.journals.topic("raw", lines)
            (self.landing / f"{start:04d}.ndjson").write_bytes(b"\n".join(lines))

    def run(self, meanwhile: Callable[[], object] = lambda: None) -> PipelineError | None:
        """Work off what is there; why that failed, if it did."""
        file = self.folder / "s.toml"
        file.write_text(
            f'gateway = "{self.journals.address}"\n[pipeline.s]\nkey = ["/k"]\ninterval = "1s"\n'
            f'sink = {{topic = "newest"}}\n{SOURCES[self.kind].format(landing=self.landing)}\n'
        )
        [definition] = read_definitions(file)
        stream = Stream(definition)
        try:
            with Checkpoint(definition) as checkpoint:
                meanwhile()
                stream.start(self.spark, checkpoint, available_now=True)
                assert stream.query is not None
                stream.query.awaitTermination()
        except PipelineError as error:
            return error
        except Exception as error:  # what Spark says of its query
            return from_spark("s", str(error))
        return None

    def sunk(self) -> list[int]:
        return [json.loads(value)["n"] for value in self.journals.topics["newest"].values]


@pytest.fixture(scope="module")
def recorded(
    spark: SparkSession, journal_server: JournalServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[CheckpointedStream, dict[str, Topic]]]:
    """For each kind of source a folder whose stream has done three batches, and the topics then."""
    made = {}
    for kind in SOURCES:
        journals = journal_server.clear()
        landing = tmp_path_factory.mktemp("landing")
        copied = CheckpointedStream(spark, journals, tmp_path_factory.mktemp(kind), landing, kind)
        copied.publish(0, BEFORE)
        assert copied.run() is None
        assert copied.sunk() == list(range(BEFORE))
        made[kind] = (copied, journals.topics)
    return made


@pytest.fixture
def copied(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    recorded: dict[str, tuple[CheckpointedStream, dict[str, Topic]]],
    journals: Journals,
    tmp_path: Path,
) -> Iterator[CheckpointedStream]:
    """A copy of one that has done three batches; then more was published."""
    kind = getattr(request, "param", "topic")
    before, topics = recorded[kind]
    shutil.copytree(before.folder, tmp_path / "copied")
    journals.topics = copy.deepcopy(topics)
    copied = CheckpointedStream(spark, journals, tmp_path / "copied", before.landing, kind)
    landed = set(copied.landing.iterdir())
    copied.publish(BEFORE, BEFORE + AFTER)
    yield copied
    for path in set(copied.landing.iterdir()) - landed:
        path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbled(path: Path) -> None:
    path.write_bytes(b"\x00garbage\n{")


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def removed(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def damage(checkpoint: Path, how: Damage, pattern: str) -> None:
    found = list(checkpoint.glob(pattern))
    assert found, f"no {pattern}"
    for path in found:
        how(path)


def case(kind: str, how: Damage, pattern: str, *more: str) -> Any:
    return pytest.param(kind, how, pattern, *more, id=f"{kind}-{how.__name__}-{pattern}")


FAILS = [
    case("topic", removed, "spark/*/[12]", "newest has batch 1 already"),
    case("topic", removed, "spark/offsets/2", "offsets/2 is gone"),
    case("topic", removed, "spark/offsets", "offsets/2 is gone"),
    case("topic", halved, "spark/offsets/2", "offsets/2 is not whole"),
    case("topic", removed, "spark/metadata", "metadata is gone"),
    case("files", removed, "spark/*/[12]", "newest has batch 1 already"),
    case("files", removed, "spark/sources/0/2", "batch 2 doesn't exist"),
    case("files", emptied, "spark/sources/0/2", "Incomplete log file"),
    case("files", removed, "spark/sources", "batch 2 doesn't exist"),
]
MENDS = [
    case("topic", removed, "[lr]*"),  # the lock, and the number of the run
    case("topic", removed, "spark/commits/2"),
    case("topic", removed, "spark/commits"),
    case("files", removed, "spark/commits/2"),
]


@rule("pipeline-10")
@pytest.mark.parametrize(("copied", "how", "pattern", "said"), FAILS, indirect=["copied"])
def test_a_damaged_state_is_an_error(
    copied: CheckpointedStream, how: Damage, pattern: str, said: str
) -> None:
    damage(copied.checkpoint, how, pattern)
    error = copied.run()
    assert isinstance(error, CheckpointUnusable), (
        f"it went on, and has {len(copied.sunk())} messages"
    )
    assert said in str(error)
    assert "\n" not in str(error)
    assert copied.sunk() == list(range(BEFORE))


@pytest.mark.parametrize(("copied", "how", "pattern"), MENDS, indirect=["copied"])
def test_files_that_are_made_again_cost_nothing(
    copied: CheckpointedStream, how: Damage, pattern: str
) -> None:
    damage(copied.checkpoint, how, pattern)
    assert copied.run() is None
    assert copied.sunk() == list(range(BEFORE + AFTER))


def test_without_a_checkpoint_everything_is_sent_again(copied: CheckpointedStream) -> None:
    shutil.rmtree(copied.checkpoint)
    assert copied.run() is None
    assert copied.sunk() == [*range(BEFORE), *range(BEFORE + AFTER)]


def fill(folder: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (folder / "ballast").write_bytes(bytes(1 << 20))


def test_a_full_disk_stops_the_stream_until_there_is_room(
    copied: CheckpointedStream, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    copied.checkpoint.rename(kept)
    copied.checkpoint.mkdir()
    try:
        with small_disk(copied.checkpoint, 256):
            shutil.copytree(kept, copied.checkpoint, dirs_exist_ok=True)
            assert "no space left" in str(copied.run(partial(fill, copied.checkpoint))).lower()
            assert "no space left" in str(copied.run())
            assert copied.sunk() == list(range(BEFORE))
            (copied.checkpoint / "ballast").unlink()
            assert copied.run() is None
    except CannotRun as reason:
        require(False, str(reason))
    assert copied.sunk() == list(range(BEFORE + AFTER))
