"""A standalone Spark cluster on this machine: a master and workers from the pip package's classes.

Executors are processes of their own, as on any cluster; every address is on loopback, every port
free, and all of it is gone with the block.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.pipeline.children import Child
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port

LOOPBACK = "127.0.0.1"
ENVIRONMENT = (
    "env",
    f"SPARK_LOCAL_IP={LOOPBACK}",
    "SPARK_DAEMON_MEMORY=256m",
    "JDK_JAVA_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)
"""What a driver on this machine needs as well: its address is the one that executors call, and six
processes of Java start sooner with one compiler and collector each."""


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A running cluster: `--master`, and the folder where workers keep what executors say."""

    master: str
    work: Path

    def executors(self) -> list[Path]:
        """A folder for each executor that was ever started."""
        return sorted(path.parent for path in self.work.glob("*/app-*/*/stderr"))


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """A master and workers of one core and one gigabyte each, ready to take a job."""
    port = lasting_port()
    cluster = SparkCluster(f"spark://{LOOPBACK}:{port}", folder / "work")
    with ExitStack() as running:
        words = ["--host", LOOPBACK, "--port", str(port), "--webui-port", "0"]
        master = running.enter_context(Child(_spark_class("master.Master", words), folder))
        master.await_until(lambda: "I have been elected leader" in master.output(), HANGS_S)
        for number in range(workers):
            words = ["--host", LOOPBACK, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            words += ["--work-dir", str(cluster.work / str(number)), cluster.master]
            running.enter_context(Child(_spark_class("worker.Worker", words), folder))
        master.await_until(lambda: master.output().count("Registering worker") == workers, HANGS_S)
        yield cluster


def _spark_class(name: str, words: list[str]) -> list[str]:
    import pyspark

    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    python = f"PYSPARK_PYTHON={sys.executable}"
    return [*ENVIRONMENT, python, str(launcher), f"org.apache.spark.deploy.{name}", *words]
