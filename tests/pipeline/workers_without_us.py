"""Spark whose tasks run in a Python without our package: writes what Spark answers to each use.

python -m tests.pipeline.workers_without_us GATEWAY FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tidegate.pipeline.spark import session

# What plans on the driver has the package; for what runs tasks import finds none.
WRAPPER = """\
#!/bin/sh
case "$*" in
  *pyspark.sql*|-c*) exec {python} "$@" ;;
esac
exec {python} -P -c "
import runpy, sys
sys.modules['tidegate'] = None
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)" "$@"
"""
HIDDEN = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"


def answer(use: Callable[[], object]) -> str:
    """What Spark says before its own stack begins."""
    try:
        use()
    except Exception as error:
        return str(error).partition("\n\tat ")[0]
    return "it worked"


def main(address: str, folder: str) -> None:
    wrapper = Path(folder, "python")
    wrapper.write_text(WRAPPER.format(python=sys.executable))
    wrapper.chmod(0o755)
    prepare = session._prepare_environment

    def prepared(local: bool) -> None:
        prepare(local)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(wrapper)

    session._prepare_environment = prepared
    spark = session.open_session("local[1]")
    spark.conf.set(HIDDEN, "true")
    rows = spark.read.format("tidegate").option("gateway", address).option("topic", "t")
    values = spark.range(1).selectExpr("to_json(struct(id)) AS value").write.format("tidegate")
    stream = spark.readStream.format("tidegate").option("gateway", address).option("topic", "t")
    query = stream.load().writeStream.format("noop").trigger(availableNow=True)
    landed = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    written = (
        landed.selectExpr("to_json(struct(value)) AS value")
        .writeStream.format("tidegate")
        .option("gateway", address)
        .option("topic", "t")
        .option("checkpointLocation", f"{folder}/written")
    )
    uses: dict[str, Callable[[], object]] = {
        "read": lambda: rows.load().collect(),
        "write": lambda: (
            values.option("gateway", address).option("topic", "t").mode("append").save()
        ),
        "read a stream": lambda: (
            query.option("checkpointLocation", f"{folder}/read").start().awaitTermination()
        ),
        "write a stream": lambda: written.start().awaitTermination(60),
    }
    answers = {name: answer(use) for name, use in uses.items()}
    spark.stop()
    Path(folder, "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
