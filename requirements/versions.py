"""Runs the unit tests on every other minor version of Python that this machine has.

    python3 dev.py versions                 one interpreter of each minor version found
    python3 dev.py versions PYTHON ...      these interpreters, such as /usr/bin/python3

Interpreters are found on PATH and below pyenv's `versions` folder. Each gets a clone of HEAD in a
temporary folder and an environment from the locks, so the package index is needed. Prints one
line for each version, and what failed in it. The classifiers of pyproject.toml name the versions
that passed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 11)
# The same selection as the unit tests of `python3 dev.py test`.
UNIT = ["-q", "-n", "2", "--dist", "worksteal", "-m", "not system and not nightly"]
NAME = re.compile(r"python3\.\d+")
PRINT_VERSION = "import sys; print(*sys.version_info[:3], sys.version_info.releaselevel)"
LINES_SHOWN = 60
"""Of a run that failed: its summary and the last tracebacks."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter and its version, `(3, 12, 1)`."""

    version: tuple[int, int, int]
    path: Path


def candidates() -> list[Path]:
    """Return the paths on which an interpreter may be."""
    folders = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep) if each]
    if shutil.which("pyenv") is not None:
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True).stdout.strip()
        folders += sorted(Path(root).glob("versions/*/bin"))
    return [
        path
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        if NAME.fullmatch(path.name)
    ]


def probe(path: Path) -> Interpreter | None:
    """Return an interpreter with its version; None: it does not start, or is a pre-release."""
    try:
        ended = subprocess.run(
            [path, "-I", "-c", PRINT_VERSION], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # A shim of pyenv prints an error where its version is not selected.
    match ended.stdout.split():
        case [major, minor, micro, "final"]:
            return Interpreter((int(major), int(minor), int(micro)), path)
    return None


def newest_of_each_minor(found: Iterable[Interpreter]) -> list[Interpreter]:
    """Return the newest interpreter of each minor version that Tidegate supports, oldest first."""
    chosen: dict[tuple[int, ...], Interpreter] = {}
    for each in found:
        minor = each.version[:2]
        known = chosen.get(minor)
        if minor >= OLDEST and (known is None or each.version > known.version):
            chosen[minor] = each
    return [chosen[minor] for minor in sorted(chosen)]


def classified() -> list[tuple[int, ...]]:
    """Return the minor versions that the classifiers of pyproject.toml name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.compile(r"Programming Language :: Python :: (\d+)\.(\d+)")
    matches = map(named.fullmatch, project["classifiers"])
    return [tuple(map(int, match.groups())) for match in matches if match]


def run_tests(interpreter: Interpreter, folder: Path) -> bool:
    """Set up a clone with an interpreter, run its unit tests, and print how they ended."""
    began_s = time.monotonic()
    clone = folder / "tidegate"
    log = folder / "log"
    commands: list[list[str | Path]] = [
        ["git", "clone", "--quiet", ROOT, clone],
        [interpreter.path, clone / "dev.py", "setup"],
        [interpreter.path, clone / "dev.py", "test", *UNIT],
    ]
    code = 0
    for command in commands:
        with log.open("w") as output:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            ).returncode
        if code:
            break
    lines = log.read_text(errors="replace").splitlines() or ["no output"]
    version = ".".join(map(str, interpreter.version))
    took_s = time.monotonic() - began_s
    print(f"{version} ({interpreter.path}): {lines[-1]}, {took_s:.0f} s", flush=True)
    if code:
        print(*lines[-LINES_SHOWN:], sep="\n", flush=True)
    return code == 0


def main(arguments: list[str]) -> int:
    """Run the tests on all interpreters; 1 if they fail on one."""
    running = sys.version_info[:2]
    if arguments:
        probed = [(path, probe(Path(path))) for path in arguments]
        unusable = [path for path, interpreter in probed if interpreter is None]
        if unusable:
            print(f"{unusable[0]} is no final release of Python that starts.")
            return 2
        chosen = [interpreter for _, interpreter in probed if interpreter is not None]
    else:
        found = [each for path in candidates() if (each := probe(path)) is not None]
        chosen = [each for each in newest_of_each_minor(found) if each.version[:2] != running]
        here = {running, *(each.version[:2] for each in chosen)}
        for minor in classified():
            if minor not in here:
                print("{}.{}: not on this machine".format(*minor))
    results = []
    for interpreter in chosen:
        with tempfile.TemporaryDirectory(prefix="tidegate-versions-") as folder:
            results.append(run_tests(interpreter, Path(folder)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
