"""Solves pyproject.toml anew into requirements/*.lock: names, versions, markers and hashes.

Run it with the set-up's own interpreter, `.venv/bin/python requirements/lock.py`, after the
dependencies changed; `--upgrade` moves every pin to the newest version its range allows. No lock
holds an address, so whatever index a machine is set up for serves it.

- uv.lock: the installer itself.
- base.lock: what runs without Spark, and what builds the editable install.
- run.lock: the whole product.
- all.lock: product, linters and tests. The others are cut from this one, so that all agree.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPARK = {"numpy", "pandas", "pillow", "pyarrow", "pyspark"}  # and what the pipeline draws with
BUILD = ["editables>=0.5"]


def name_of(requirement: str) -> str:
    """The distribution's name at the start of a requirement."""
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()


def solve(lock: str, requirements: list[str], *more: str) -> None:
    """Writes one lock; raises CalledProcessError when uv finds no solution."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "-", "-o", str(HERE / lock), "-q"]
    command += ["--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", *more]
    subprocess.run(command, input="\n".join(requirements), text=True, check=True, cwd=HERE.parent)
    print(f"requirements/{lock}")


def main() -> None:
    """Writes the four locks."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    run = project["project"]["dependencies"] + project["build-system"]["requires"] + BUILD
    base = [requirement for requirement in run if name_of(requirement) not in SPARK]
    solve("all.lock", run + project["dependency-groups"]["dev"], *sys.argv[1:])
    agree = ("-c", str(HERE / "all.lock"))
    solve("run.lock", run, *agree)
    solve("base.lock", base, *agree)
    solve("uv.lock", ["uv"], *sys.argv[1:])


if __name__ == "__main__":
    main()
