"""A Python without our package says so in a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from dev import ROOT
from tests.pipeline.children import Child
from tests.pipeline.journals import Journals
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_java
from tidegate.pipeline.format.executor_check import SentToExecutors
from tidegate.pipeline.format.options import ReadOptions, WriteOptions
from tidegate.pipeline.format.reader import JournalReader, JournalStreamReader
from tidegate.pipeline.format.source import TidegateSource
from tidegate.pipeline.format.writer import TopicBatchWriter, TopicStreamWriter

# Import looks for a package in its parent, and here it is the parent's turn to be absent.
SENTENCE = " has no package tidegate.pipeline: install tidegate with its requirements on every"
SENT_TO_EXECUTORS: list[SentToExecutors] = [
    TidegateSource({"topic": "t"}),
    JournalReader(ReadOptions("http://h", "t")),
    JournalStreamReader(ReadOptions("http://h", "t")),
    TopicStreamWriter(WriteOptions("http://h", "t"), 7),
    TopicBatchWriter(WriteOptions("http://h", "t")),
]


def packed(traveller: object) -> bytes:
    """As Spark packs it, inside a function."""
    return bytes(cloudpickle.dumps(lambda: traveller))  # type: ignore[no-untyped-call]  # Spark's


def elsewhere(folder: Path, sent: bytes, *, has_it: bool) -> subprocess.CompletedProcess[str]:
    """A Python that unpacks what Spark has sent it, with our package or as if there were none."""
    (folder / "sent").write_bytes(sent)
    lacks = "" if has_it else "sys.modules['tidegate'] = None; "  # what import takes for absent
    code = (
        f"import pathlib, pickle, sys; sys.path.insert(0, {str(ROOT)!r}); {lacks}"
        "print(type(pickle.loads(pathlib.Path('sent').read_bytes())()).__name__)"
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=folder, env={}, capture_output=True, text=True
    )


@pytest.mark.system
@pytest.mark.parametrize(
    "traveller",
    [
        SENT_TO_EXECUTORS[0],
        *(pytest.param(it, marks=pytest.mark.nightly) for it in SENT_TO_EXECUTORS[1:]),
    ],
    ids=lambda it: type(it).__name__,
)
def test_what_an_executor_lacks_is_one_sentence(tmp_path: Path, traveller: object) -> None:
    said = elsewhere(tmp_path, packed(traveller), has_it=False).stderr.splitlines()[-1]
    assert said.startswith("RuntimeError: the Python of executor ")
    assert SENTENCE in said


@pytest.mark.system
def test_where_it_is_there_it_arrives_as_it_was(tmp_path: Path) -> None:
    there = elsewhere(tmp_path, packed(SENT_TO_EXECUTORS[1]), has_it=True)
    assert there.stdout == "JournalReader\n", there.stderr
    for traveller in SENT_TO_EXECUTORS:
        arrived = cloudpickle.loads(packed(traveller))()
        assert (type(arrived), vars(arrived).keys()) == (type(traveller), vars(traveller).keys())
        assert vars(arrived).get("_options") == vars(traveller).get("_options")


@pytest.mark.nightly
@pytest.mark.spark
def test_a_spark_whose_tasks_lack_it_says_so(journals: Journals, tmp_path: Path) -> None:
    """Whatever Spark takes along: what it packs beside a reader was once not ours to unpack."""
    require_java()
    journals.topic("t", [b"1", b"2"])
    words = ["-m", "tests.pipeline.workers_without_us", journals.address, str(tmp_path)]
    with Child([sys.executable, *words], tmp_path) as spark:
        assert spark.wait(HANGS_S) == 0, spark.output()
    answers = json.loads((tmp_path / "answers.json").read_text())
    assert sorted(answers) == ["read", "read a stream", "write", "write a stream"]
    for use, said in answers.items():
        assert SENTENCE in said, use
        assert "Traceback" not in said, use
    assert journals.topics["t"].publications == []
