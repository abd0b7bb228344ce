"""`python -m bench [SUITE]...`: print the figures of all suites or the named ones, and the machine.

`python -m bench equality` is not a suite: it checks that Spark and the engine deliver the same rows
of a recorded day.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version

from bench import (
    engine,
    equality,
    fanout,
    ingest,
    loopback,
    openings,
    pipeline,
    sizing,
    store,
    topics,
)

SUITES = {
    "engine": engine.figures,
    "fanout": fanout.figures,
    "ingest": ingest.figures,
    "loopback": loopback.figures,
    "openings": openings.figures,
    "pipeline": pipeline.figures,
    "store": store.figures,
    "sizing": sizing.figures,
    "topics": topics.figures,
}


def main(names: list[str]) -> int:
    """Run the named suites, or all. Return 2 for an unknown name."""
    if names == ["equality"]:
        return equality.main()
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"There is no suite {unknown[0]}; there are {', '.join(SUITES)}.", file=sys.stderr)
        return 2
    packages = ("uvicorn", "sse-starlette", "msgspec", "pyspark", "pyarrow")
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    print(f"Python {platform.python_version()}, {machine}; {versions}", flush=True)
    for name in names or SUITES:
        for what, value, unit in SUITES[name]():
            print(f"{name:8} {what:48} {value:12,.1f} {unit}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
