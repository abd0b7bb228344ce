"""Solves pyproject.toml anew into requirements/*.lock: names, versions, markers and hashes.

Run it with the set-up's own interpreter, `.venv/bin/python requirements/lock.py`, after the
dependencies changed; `--upgrade` moves every pin to the newest version its range allows. No lock
holds an address, so whatever index a machine is set up for serves it.

- uv.lock: the installer itself.
- base.lock: the gateway, its demo and ingest, without Spark, and what builds the editable install.
- run.lock: the whole product, all its extras.
- all.lock: product, linters and tests. The others are cut from this one, so that all agree.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = "pyproject.toml"
BUILD = ["editables>=0.5"]


def solve(lock: str, requirements: list[str], *more: str) -> None:
    """Write one lock; raises CalledProcessError when uv finds no solution."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "-", "-o", str(HERE / lock), "-q"]
    command += ["--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    text = "\n".join(requirements)
    subprocess.run([*command, *more], input=text, text=True, check=True, cwd=HERE.parent)
    print(f"requirements/{lock}")


def main() -> None:
    """Write the four locks."""
    project = tomllib.loads((HERE.parent / PROJECT).read_text())
    build = project["build-system"]["requires"] + BUILD
    agree = ("-c", str(HERE / "all.lock"))
    solve("all.lock", build, PROJECT, "--extra", "all", "--group", "dev", *sys.argv[1:])
    solve("run.lock", build, PROJECT, "--extra", "all", *agree)
    extras = project["project"]["optional-dependencies"]
    in_all = extras["all"][0].partition("[")[2].rstrip("]").split(",")
    sources = [name for name in in_all if "tidegate[ingest]" in extras[name]]
    wanted = [word for name in ("demo", *sources) for word in ("--extra", name)]
    solve("base.lock", build, PROJECT, *wanted, *agree)
    solve("uv.lock", ["uv"], *sys.argv[1:])


if __name__ == "__main__":
    main()
