"""What executors on other machines need: this code, which travels with the driver, and packages.

They are asked before a stream starts, so that what is missing is one sentence and not a query that
fails.
"""

from __future__ import annotations

import importlib
import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate import HOME
from tidegate.pipeline.errors import SparkUnavailable, innermost

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

OURS = ("clients", "keys", "pipeline")
SOURCE = "pyspark_tidegate"
IMPORTED = (SOURCE, "tidegate.pipeline.sinks.topic", "tidegate.pipeline.streams.plans")
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
    missing = sorted(_ask(context, seconds_max))
    if missing:
        raise SparkUnavailable(
            f"an executor of {context.master} has no Python package {missing[0]}: "
            "install the requirements of Tidegate on every node"
        )


def pack_ours(target: Path) -> Path:
    """This code as a zip that Python imports from.

    It has no links: the packages stand in the folder `tidegate` itself.
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
    """The package that this Python lacks for our work, or nothing."""
    try:
        for module in IMPORTED:
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        return error.name or str(error)
    return ""


def _ask(context: SparkContext, seconds_max: float) -> set[str]:
    """What executors lack: as many tasks as there are cores."""
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
