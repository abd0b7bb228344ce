"""A standalone Spark on loopback: one master, and workers of one core each.

Work of each task, bytes of shuffles and the serial part are from Spark's log of events; the CPU
time of the Pythons, which Spark does not count, is that of their processes. This machine has fewer
cores than all these processes: more workers show how work divides, not how long it takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyspark

from bench.figure import Figure, median
from bench.spark.processes import watched
from tests.support.ports import lasting_port
from tidegate.pipeline.spark.session import close_session, open_session

WORKERS = (1, 2, 4)
MESSAGES, FILES, KEYS = 2_000_000, 5, 100_000
WAY = 'pace = "key"\ninterval = "1s"\ntime = {field = "/ts"}'
SETTINGS = """\
spark.executor.memory 600m
spark.eventLog.enabled true
spark.eventLog.dir {folder}/events
spark.eventLog.compress false
spark.eventLog.rolling.enabled false
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
"""
CLASSES = "org.apache.spark.deploy"


class Task(NamedTuple):
    """A task of one stage: when it ran (ms of the clock), and bytes that it shuffled."""

    begin_ms: int
    end_ms: int
    read: int
    written: int


def figures() -> Iterator[Figure]:
    """Yield the figures of the same stream on each cluster."""
    # One configuration for all: this process has one Java, which reads it once.
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as place:
        folder = Path(place)
        for name in ("conf", "events"):
            (folder / name).mkdir()
        settings = folder / "conf" / "spark-defaults.conf"
        settings.write_text(SETTINGS.format(folder=folder), encoding="utf-8")
        for workers in WORKERS:
            yield from _with_workers(folder, folder / str(workers), workers)


def _with_workers(common: Path, folder: Path, workers: int) -> Iterator[Figure]:
    from bench.spark import scale

    (folder / "in").mkdir(parents=True)
    for number in range(FILES):
        scale.write_messages(folder / "in", number, (n % KEYS for n in range(MESSAGES // FILES)))
    with watched() as seen, _cluster(common, workers) as master:
        spark = open_session(master)
        try:
            ran = scale.run(spark, folder, "cluster", WAY)
        finally:
            close_session(spark)
    counted = range(1, FILES)  # the first batch starts the Python workers
    batches = [ran.batches[number] for number in counted]
    stages = _stages(common / "events")
    messages, begin, end = MESSAGES // FILES, batches[0][0], batches[-1][1]
    named = f"{workers} worker{'s'[: workers > 1]}"
    for role, what in (("executor", "tasks"), ("driver", "driver")):
        cpu_s = seen.cpu_s(begin, end, role) / len(counted)
        yield Figure(f"{named}: CPU of {what} a message", cpu_s / messages * 1e6, "µs")
    # The blocks of files are listed, cut and shuffled, conflated and shuffled, and written.
    for at, what in ((1, "cut"), (2, "conflated")):
        tasks = [stages[number][at] for number in counted]
        written = median([sum(task.written for task in each) for each in tasks])
        yield Figure(f"{named}: {what}", median([len(each) for each in tasks]), "tasks")
        yield Figure(f"{named}: shuffled once {what}", written / messages, "bytes/message")
    shares = [
        max(task.read for task in each) * len(each) / sum(task.read for task in each)
        for each in (stages[number][2] for number in counted)
    ]
    yield Figure(f"{named}: largest task of conflation, of the mean", median(shares), "x")
    one = [sum(task.end_ms - task.begin_ms for task in stages[number][-1]) for number in counted]
    yield Figure(f"{named}: the task that writes", median(one) / 1_000, "s/batch")
    idle = [_idle_s(batch, stages[number]) for batch, number in zip(batches, counted, strict=True)]
    yield Figure(f"{named}: no task runs", median(idle), "s/batch")
    took = median([ran.seconds[number] for number in counted])
    yield Figure(f"{named}: batch of {messages:,} messages", took, "s")


def _stages(folder: Path) -> dict[int, list[list[Task]]]:
    """Return the tasks of each stage of each batch, in the order of the stages."""
    log = max(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    batch_of: dict[int, int] = {}
    found: dict[int, dict[int, list[Task]]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        event: dict[str, Any] = json.loads(line)
        match event["Event"]:
            case "SparkListenerJobStart" if "streaming.sql.batchId" in event["Properties"]:
                number = int(event["Properties"]["streaming.sql.batchId"])
                batch_of |= dict.fromkeys(event["Stage IDs"], number)
            case "SparkListenerTaskEnd" if event["Stage ID"] in batch_of:
                stages = found.setdefault(batch_of[event["Stage ID"]], {})
                stages.setdefault(event["Stage ID"], []).append(_task(event))
    return {number: [stages[at] for at in sorted(stages)] for number, stages in found.items()}


def _task(event: dict[str, Any]) -> Task:
    info, metrics = event["Task Info"], event["Task Metrics"]
    reads = metrics["Shuffle Read Metrics"]
    return Task(
        info["Launch Time"],
        info["Finish Time"],
        reads["Local Bytes Read"] + reads["Remote Bytes Read"],
        metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"],
    )


def _idle_s(batch: tuple[float, float], stages: list[list[Task]]) -> float:
    """Return the seconds of a batch in which no task runs."""
    busy_ms, reached_ms = 0, 0
    for task in sorted(task for stage in stages for task in stage):
        busy_ms += max(0, task.end_ms - max(task.begin_ms, reached_ms))
        reached_ms = max(reached_ms, task.end_ms)
    return batch[1] - batch[0] - busy_ms / 1_000


@contextmanager
def _cluster(folder: Path, workers: int) -> Iterator[str]:
    """Run a master and workers of one core; yield the master's address."""
    port = lasting_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        running.enter_context(_setting("SPARK_CONF_DIR", str(folder / "conf")))
        words = ["--host", "127.0.0.1", "--webui-port", "0"]
        running.enter_context(_java(folder, "master.Master", *words, "--port", str(port)))
        words += ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
        for _ in range(workers):
            running.enter_context(_java(folder, "worker.Worker", *words, address))
        running.enter_context(_setting("SPARK_LOCAL_IP", "127.0.0.1"))
        yield address


@contextmanager
def _java(folder: Path, name: str, *words: str) -> Iterator[None]:
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [str(launcher), f"{CLASSES}.{name}", *words]
    with (folder / "cluster.log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)


@contextmanager
def _setting(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
