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
from tests.pipeline.journals import Journals, Topic
from tests.support.outside import require
from tests.support.rules import rule
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.errors import CheckpointMismatch, PipelineError, from_spark
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BEFORE, AFTER, A_BATCH = 90, 30, 30
SOURCES = {
    "topic": 'source = {{kind = "tidegate", topic = "raw"}}\nrows_per_batch = 30',
    "files": 'source = {{kind = "files", path = "{landing}/*.ndjson"}}\nfiles_per_batch = 1',
}
Damage = Callable[[Path], None]
"""What is done to a file or folder of a checkpoint."""


@dataclass
class Life:
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
def lived(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Life, dict[str, Topic]]]:
    """For each kind of source a folder whose stream has done three batches, and the topics then."""
    from tests.pipeline.journals import serving

    made = {}
    for kind in SOURCES:
        with serving() as journals:
            landing = tmp_path_factory.mktemp("landing")
            life = Life(spark, journals, tmp_path_factory.mktemp(kind), landing, kind)
            life.publish(0, BEFORE)
            assert life.run() is None
            assert life.sunk() == list(range(BEFORE))
            made[kind] = (life, journals.topics)
    return made


@pytest.fixture
def life(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    journals: Journals,
    tmp_path: Path,
    lived: dict[str, tuple[Life, dict[str, Topic]]],
) -> Iterator[Life]:
    """A copy of one that has done three batches; then more was published."""
    kind = getattr(request, "param", "topic")
    before, topics = lived[kind]
    shutil.copytree(before.folder, tmp_path / "life")
    journals.topics = copy.deepcopy(topics)
    life = Life(spark, journals, tmp_path / "life", before.landing, kind)
    landed = set(life.landing.iterdir())
    life.publish(BEFORE, BEFORE + AFTER)
    yield life
    for path in set(life.landing.iterdir()) - landed:
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
@pytest.mark.parametrize(("life", "how", "pattern", "said"), FAILS, indirect=["life"])
def test_a_damaged_state_is_an_error(life: Life, how: Damage, pattern: str, said: str) -> None:
    damage(life.checkpoint, how, pattern)
    error = life.run()
    assert isinstance(error, CheckpointMismatch), f"it went on, and has {len(life.sunk())} messages"
    assert said in str(error)
    assert "\n" not in str(error)
    assert life.sunk() == list(range(BEFORE))


@pytest.mark.parametrize(("life", "how", "pattern"), MENDS, indirect=["life"])
def test_files_that_are_made_again_cost_nothing(life: Life, how: Damage, pattern: str) -> None:
    damage(life.checkpoint, how, pattern)
    assert life.run() is None
    assert life.sunk() == list(range(BEFORE + AFTER))


def test_without_a_checkpoint_everything_is_sent_again(life: Life) -> None:
    shutil.rmtree(life.checkpoint)
    assert life.run() is None
    assert life.sunk() == [*range(BEFORE), *range(BEFORE + AFTER)]


def fill(folder: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (folder / "ballast").write_bytes(bytes(1 << 20))


def test_a_full_disk_stops_the_stream_until_there_is_room(life: Life, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    life.checkpoint.rename(kept)
    life.checkpoint.mkdir()
    try:
        with small_disk(life.checkpoint, 256):
            shutil.copytree(kept, life.checkpoint, dirs_exist_ok=True)
            assert "no space left" in str(life.run(partial(fill, life.checkpoint))).lower()
            assert "no space left" in str(life.run())
            assert life.sunk() == list(range(BEFORE))
            (life.checkpoint / "ballast").unlink()
            assert life.run() is None
    except CannotRun as reason:
        require(False, str(reason))
    assert life.sunk() == list(range(BEFORE + AFTER))
