"""The one SparkSession of a process, quiet and cheap for small batches."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate import HOME
from tidegate.pipeline.errors import SparkUnavailable, innermost
from tidegate.pipeline.operations.shutdown import signals_held
from tidegate.pipeline.spark.jvm import Jvm, require_java

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


# --- executors on other machines: the driver sends our code, packages must be installed there
#
# Ask them before a stream starts: a missing package is then one sentence and not a failed query.

OURS = ("clients", "keys", "pipeline")
SOURCE = "pyspark_tidegate"
IMPORTED = (SOURCE, "tidegate.pipeline.sinks.topic", "tidegate.pipeline.streams.shard_state")
EXECUTOR_SECONDS_MAX = 120.0
PROBE = "tidegate-probe"


def prepare_executors(spark: SparkSession, seconds_max: float = EXECUTOR_SECONDS_MAX) -> None:
    """Send our code to the executors and see that it can be imported there.

    Raises:
        SparkUnavailable: no executor takes a task in time, it has no such Python, or it lacks a
            package; the text says which.
    """
    from pyspark import SparkFiles

    context = spark.sparkContext
    # In the session's own folder: executors that start later fetch it from there.
    folder = Path(SparkFiles.getRootDirectory()) / "sent"
    folder.mkdir(exist_ok=True)
    context.addPyFile(str(pack_ours(folder / "tidegate.zip")))
    # One sentence names one package: sorted, so that it is the same each time.
    missing = sorted(_ask(context, seconds_max))
    if missing:
        raise SparkUnavailable(
            f"an executor of {context.master} has no Python package {missing[0]}: "
            "install the requirements of Tidegate on every node"
        )


def pack_ours(target: Path) -> Path:
    """Write this code to a zip that Python imports from, and return its path.

    The checkout has links in `tidegate`; a zip has none, so put the packages there.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(HOME / "tidegate" / "__init__.py", "tidegate/__init__.py")
        for package in OURS:
            for module in sorted((HOME / package).rglob("*.py")):
                archive.write(module, "tidegate" / module.relative_to(HOME))
        for module in sorted((HOME / SOURCE).rglob("*.py")):
            archive.write(module, module.relative_to(HOME))
    return target


def missing_package() -> str:
    """Return the package that this Python lacks for our work, or an empty text."""
    try:
        for module in IMPORTED:
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        return error.name or str(error)
    return ""


def _ask(context: SparkContext, seconds_max: float) -> set[str]:
    """Return what executors lack, asked by as many tasks as there are cores."""
    context.setJobGroup(PROBE, "are our packages there?")
    too_late = threading.Timer(seconds_max, context.cancelJobGroup, [PROBE])
    too_late.start()
    try:
        tasks = context.parallelize(range(context.defaultParallelism), context.defaultParallelism)
        return set(tasks.map(lambda _: missing_package()).collect()) - {""}
    except Exception as error:  # whatever Spark, py4j or an executor has to say
        raise SparkUnavailable(_why(str(context.master), str(error), seconds_max)) from error
    finally:
        too_late.cancel()


def _why(master: str, text: str, seconds_max: float) -> str:
    if "cancelled" in text and PROBE in text:
        return (
            f"no executor of {master} took a task in {seconds_max:.0f} s: "
            "it needs a worker with a free core and 1 GB of memory"
        )
    return f"the executors of {master} cannot work: {innermost(text)}"


# --- the session: quiet, and cheap for small batches

SHUFFLES = "spark.sql.shuffle.partitions"
SPARKS_SHUFFLES = "200"  # Spark's default: many times what a batch of a second has work for
LOCAL_SHUFFLE_PARTITIONS = 2
DRIVER_MEMORY = "1g"
# The lines are read and combined in Python; a second compiler and a parallel collector would
# take more from the few cores of one machine than they give (a start costs a third less).
LOCAL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
POLL_EVERY_S = 0.05
_STARTED: list[Jvm] = []  # at most one, as PySpark has it
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"


@contextmanager
def spark_session(master: str, jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """Open Spark as `open_session` does, while the block runs.

    A `KeyboardInterrupt` finds PySpark in the middle of an answer: nothing more can be asked then,
    and Java ends as it is.

    Raises:
        SparkUnavailable: as `open_session`.
    """
    spark: SparkSession | None = None
    try:
        spark = open_session(master, jars)
        yield spark
    except KeyboardInterrupt:
        spark = None
        end_java()
        raise
    finally:
        if spark is not None:
            close_session(spark)


def open_session(master: str, jars: Sequence[Path] = ()) -> SparkSession:
    """Start Spark on `master` (`local[*]`, `spark://HOST:PORT`, ...): some six seconds.

    `jars` are what some streams need besides Spark's own; executors get them from here. Signals
    stay as they are; a `KeyboardInterrupt` ends Java.

    Raises:
        SparkUnavailable: Java or PySpark is missing or too old, or Spark does not start.
    """
    if master.startswith("sc://"):
        raise SparkUnavailable(
            "Spark Connect has no driver in this process: --master takes spark:// or local"
        )
    require_java()
    if find_spec("pyspark") is None:
        raise SparkUnavailable(
            "PySpark is not installed: run python3 dev.py setup (without --no-spark)"
        )
    _silence_py4j()
    local = master.startswith("local")
    _prepare_environment(local)
    settings = {"spark.master": master, "spark.app.name": "tidegate", **_settings(local)}
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    _start_java(settings)
    spark = _aside(lambda: _made(settings, local))
    # Makes it the session of this thread, by which Spark looks for formats to write.
    spark.createDataFrame([], "nothing int")
    return spark


def close_session(spark: SparkSession) -> None:
    """Close the session, if its JVM still runs."""
    from py4j.protocol import Py4JError

    with warnings.catch_warnings(), suppress(Py4JError, OSError):
        warnings.simplefilter("ignore")  # PySpark warns where the JVM is gone
        spark.stop()


def _start_java(settings: Mapping[str, str]) -> None:
    """Start the one Java of this process for PySpark, unless PySpark has one already."""
    from pyspark import SparkContext

    begun = SparkContext._gateway  # noqa: SLF001 - no public name says whether PySpark has a Java
    if begun is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        jvm = Jvm(settings)
        _STARTED.append(jvm)
        SparkContext._ensure_initialized(gateway=jvm.gateway)  # noqa: SLF001 - `builder` takes no gateway


def end_java() -> None:
    """End the Java of this process."""
    for jvm in _STARTED:
        jvm.end()


def _aside(make: Callable[[], SparkSession]) -> SparkSession:
    """Run `make` in another thread and return its result.

    In the main thread PySpark would replace our handler of SIGINT, and a signal could interrupt it
    in the middle of one of Java's answers.
    """
    # A thread of the pool is joined at the end of the block, so nothing outlives it.
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as aside:
        try:
            with signals_held():  # or one could come before the pool knows its thread
                making = aside.submit(make)
            while not wait([making], POLL_EVERY_S).done:
                pass  # not in one wait: a signal just before it would not end it
            return making.result()
        except KeyboardInterrupt:
            warnings.simplefilter("ignore")  # PySpark warns where the JVM is gone
            end_java()  # or the thread would go on to its end
            raise


def _made(settings: Mapping[str, str], local: bool) -> SparkSession:
    master = settings["spark.master"]
    try:
        spark = _connected(settings)
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


def _connected(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.config(map=dict(settings)).getOrCreate()
    counting = spark.sparkContext._accumulatorServer  # noqa: SLF001 - nothing else has it
    # It would print a traceback where Java is gone before it.
    counting.handle_error = _say_nothing  # type: ignore[method-assign, assignment]  # a method of this one server is replaced
    return spark


def _silence_py4j() -> None:
    """Keep py4j from printing tracebacks of failed batches and interrupts.

    py4j logs interrupts to the root logger, so they need a filter there.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _say_nothing(*_: object) -> None:
    pass


def _fit_shuffles(spark: SparkSession) -> None:
    """Use as many partitions as the cluster has cores, unless its configuration says how many."""
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
    root = str(HOME)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def _settings(local: bool) -> dict[str, str]:
    quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    settings = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": (f"{quiet} {LOCAL_JVM}" if local else quiet),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Where Java and a Python talk for the first time; a busy machine takes more than 15 s.
        "spark.python.authenticate.socketTimeout": "60s",
        # Spark would replan a stage while another thread sends the plan: a task may get a plan that
        # changes meanwhile. Small batches gain nothing, and a separate job for each shuffle takes a
        # tenth of their time.
        "spark.sql.adaptive.enabled": "false",
        # Batches without rows have nothing to conflate, and no state waits for them.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }
    if local:
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            SHUFFLES: str(LOCAL_SHUFFLE_PARTITIONS),
            # Blocks are compressed already (`columns/rows.py`), and here they cross no network.
            "spark.shuffle.compress": "false",
            # Renames on a local disk are atomic; checksum files and fsync by proxy only cost.
            "spark.sql.streaming.checkpointFileManagerClass": (
                f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager"
            ),
            "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        }
    return settings
