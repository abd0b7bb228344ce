"""The one SparkSession of a process, quiet and cheap for small batches, and its Java."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import SparkUnavailable
from pipeline.executors import prepare_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
JAVA_VERSION_SECONDS_MAX = 30
JAVA_ADVICE = (
    f"Spark needs Java {JAVA_MIN} or newer (Debian: apt-get install openjdk-17-jre-headless)"
)
SHUFFLES = "spark.sql.shuffle.partitions"
SPARKS_SHUFFLES = "200"  # Spark's default: many times what a batch of a second has work for
LOCAL_SHUFFLE_PARTITIONS = 2
DRIVER_MEMORY = "1g"
# The lines are read and combined in Python; a second compiler and a parallel collector would
# take more from the few cores of one machine than they give (a start costs a third less).
LOCAL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"


def open_session(master: str, jars: Sequence[Path] = ()) -> SparkSession:
    """Start Spark on `master` (`local[*]`, `spark://HOST:PORT`, ...): some six seconds.

    `jars` are what some streams need besides Spark's own; executors get them from here.

    Raises:
        SparkUnavailable: Java or PySpark is missing or too old, or Spark does not start.
    """
    require_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkUnavailable(
            "PySpark is not installed: run python3 dev.py setup (without --no-spark)"
        ) from None
    # It would print the traceback of a failed batch, which we tell as a sentence.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    local = master.startswith("local")
    _prepare_environment(local)
    builder = SparkSession.builder.master(master).appName("tidegate")
    for name, setting in _settings(local).items():
        builder = builder.config(name, setting)
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # whatever Spark, py4j or the JVM has to say
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SparkUnavailable(f"Spark does not start on {master}: {first[:500]}") from error
    if not local:
        try:
            prepare_executors(spark)
        except SparkUnavailable:
            spark.stop()
            raise
        _fit_shuffles(spark)
    return spark


def java_command() -> str:
    """The Java that Spark will use.

    Raises:
        SparkUnavailable: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise SparkUnavailable(f"no java found: {JAVA_ADVICE}")
    return java


def require_java() -> int:
    """The major version of the Java that Spark will use.

    Raises:
        SparkUnavailable: no Java, or one below 17; the text says what to do.
    """
    java, advice = java_command(), JAVA_ADVICE
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_VERSION_SECONDS_MAX
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        raise SparkUnavailable(f"{java} does not run: {advice}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        version = f"version {found[1]}" if found else "of an unknown version"
        raise SparkUnavailable(f"{java} is {version}: {advice}")
    return int(found[1])


def _fit_shuffles(spark: SparkSession) -> None:
    """As many partitions as the cluster has cores, unless its configuration says how many."""
    if spark.conf.get(SHUFFLES) == SPARKS_SHUFFLES:
        cores = max(spark.sparkContext.defaultParallelism, LOCAL_SHUFFLE_PARTITIONS)
        spark.conf.set(SHUFFLES, str(cores))


def _prepare_environment(local: bool) -> None:
    # Workers would take PATH's python3, and must find these packages wherever they were started.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:  # other machines may have it elsewhere
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = str(Path(__file__).resolve().parent.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def _settings(local: bool) -> dict[str, str]:
    quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    settings = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": f"{quiet} {LOCAL_JVM}" if local else quiet,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Batches without rows have nothing to conflate, and no state waits for them.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }
    if local:
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            SHUFFLES: str(LOCAL_SHUFFLE_PARTITIONS),
            # Renames on a local disk are atomic; checksum files and fsync by proxy only cost.
            "spark.sql.streaming.checkpointFileManagerClass": (
                f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager"
            ),
            "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        }
    return settings
