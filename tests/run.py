"""Runs the linters and the tests that one of the commands of `dev.py test` asks for.

    python3 dev.py test                    linters, unit and system tests
    python3 dev.py test --quick [ROOM ...] unit tests of rooms, such as `keys` or `app/http`
    python3 dev.py test --nightly          everything, with fresh seeds
    python3 dev.py test --durations        as without arguments, then writes tests/durations.tsv
    python3 dev.py test ARGUMENTS          pytest with these arguments

CONTRIBUTING.md says what belongs to which tier. The last line printed is the sum over all parts.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from dev import ROOT, keep_bytecode
from tests.durations import Durations

BIN = Path(sys.executable).parent
CHECKED = ("tidegate", "pyspark_tidegate", "tests", "bench", "examples", "requirements", "dev.py")
PRODUCT = ("app", "clients", "conflation", "keys", "pipeline", "pyspark_tidegate")

# For two cores. System tests wait for processes and deadlines most of their time, so they run one
# after the other: the first worker begins with them, the second with those on Spark, and the third
# with unit tests, whose clock jumps, so that load does not disturb them (see tests/conftest.py).
WORKERS = ("-n", "3", "--dist", "worksteal")
DEFAULT = (*WORKERS, "-m", "not nightly")
UNIT = ("-n", "2", "--dist", "worksteal", "-m", "not system and not nightly")
NIGHTLY = (*WORKERS, "--durations=40", "-m", "nightly")
NOTHING_SELECTED = 5
"""The exit code of pytest when no test fits the markers."""

QUICK_ROOMS = ("keys", "conflation")


@dataclass(slots=True)
class Run:
    """The parts of one run and what they found."""

    seed: int | None = None
    is_green: bool = True
    durations: Durations = field(default_factory=Durations)
    _began_s: float = field(default_factory=time.monotonic)

    def lint(self) -> None:
        """Run every linter, two at a time, and print what each says."""
        began_s = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            self._print_linters(linted(pool))
        self._print_time("linters", began_s)

    def lint_and_test(self) -> None:
        """Run the default tier: the linters beside the unit and system tests."""
        with ThreadPoolExecutor(1) as pool:
            ended = linted(pool)
            self.pytest("unit and system", *DEFAULT)
            self._print_linters(ended)

    def pytest(self, title: str, *arguments: str) -> None:
        """Run pytest once and count what it reports."""
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *arguments]
            if self.seed is not None:
                command.append(f"--hypothesis-seed={self.seed}")
            code = subprocess.run(command, cwd=ROOT).returncode
            self.is_green &= code in (0, NOTHING_SELECTED)
            if report.exists():
                self.durations.add(report)
        self._print_time(title, began_s)

    def command(self, title: str, *arguments: str) -> None:
        """Run another check, a module or a script, that has an exit code and no tests."""
        began_s = time.monotonic()
        print(f"--- {title}", flush=True)
        self.is_green &= subprocess.run([sys.executable, *arguments], cwd=ROOT).returncode == 0
        self._print_time(title, began_s)

    def end(self) -> int:
        """Print the sum and return the exit code.

        No test at all is a failure. So is a skip where TIDEGATE_REQUIRE_ALL=1 says that nothing
        that a test needs is missing.
        """
        found = self.durations.outcomes
        if found["skipped"] and os.environ.get("TIDEGATE_REQUIRE_ALL") == "1":
            print("Tests were skipped, and TIDEGATE_REQUIRE_ALL=1 allows none.")
            self.is_green = False
        self.is_green &= found["passed"] > 0
        if not self.is_green and not found["failed"]:
            print("No test failed, but the run did: see above.")
        if self.seed is not None:
            print(f"To repeat the searches: TIDEGATE_TEST_SEED={self.seed}")
        self._print_time("all parts", self._began_s)
        print("{passed} passed, {failed} failed, {skipped} skipped".format(**found), flush=True)
        return 0 if self.is_green else 1

    def _print_linters(self, ended: Iterable[subprocess.CompletedProcess[str]]) -> None:
        for linter in ended:
            words = [Path(linter.args[0]).name, *map(str, linter.args[1:3])]
            print(f"--- {' '.join(words)}\n{linter.stdout}", end="", flush=True)
            self.is_green &= linter.returncode == 0

    def _print_time(self, title: str, began_s: float) -> None:
        print(f"--- {title}: {time.monotonic() - began_s:.0f} s", flush=True)


def linted(pool: Executor) -> Iterator[subprocess.CompletedProcess[str]]:
    """Start every linter in a pool; yield each as it ends, in a fixed order."""
    typed = [name for name in CHECKED if name.endswith(".py") or any((ROOT / name).rglob("*.py"))]
    # Of this Python: the libraries that are installed, and their types, are those for it.
    version = "{}.{}".format(*sys.version_info)
    commands: list[list[str | Path]] = [
        # The type checker takes longest and uses one core, so it starts first.
        [BIN / "mypy", "--python-version", version, *typed],
        [BIN / "ruff", "check"],
        [BIN / "ruff", "format", "--check"],
        [BIN / "lint-imports"],
        [BIN / "deptry", *PRODUCT],
    ]
    return pool.map(_captured, commands)


def _captured(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def changed_rooms() -> list[str]:
    """Return the test folders of the files that differ from HEAD, or a short list if none does."""
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    rooms = {room for line in status.splitlines() if (room := room_of(line[3:].split(" -> ")[-1]))}
    return sorted(rooms) or list(QUICK_ROOMS)


def room_of(path: str) -> str | None:
    """Return the test folder for a changed file: `app/http/wire.py` is tested in `app/http`."""
    parts = Path(path).parts
    if parts[:1] == ("tests",):
        parts = parts[1:]
    for length in (2, 1):
        room = "/".join(parts[:length])
        if len(parts) > length and (ROOT / "tests" / room).is_dir():
            return room
    return None


def quick(rooms: list[str]) -> int:
    """Run the unit tests of some rooms, without the type checker."""
    unknown = [room for room in rooms if not (ROOT / "tests" / room).exists()]
    if unknown:
        print(f"There is no tests/{unknown[0]}: name a folder below tests/, such as app/http.")
        return 2
    run = Run()
    chosen = rooms or changed_rooms()
    print(f"--- rooms: {', '.join(chosen)}", flush=True)
    run.pytest("unit", *UNIT, *(f"tests/{room}" for room in chosen))
    return run.end()


def nightly() -> int:
    """Run everything, with fresh seeds unless TIDEGATE_TEST_SEED repeats an earlier run."""
    seed = int(os.environ.get("TIDEGATE_TEST_SEED") or secrets.randbelow(1 << 31))
    os.environ["TIDEGATE_TEST_SEED"] = str(seed)
    os.environ["TIDEGATE_HYPOTHESIS_PROFILE"] = "nightly"
    print(f"--- seed {seed}", flush=True)
    run = Run(seed)
    run.lint_and_test()
    run.pytest("nightly", *NIGHTLY)
    # Searched for long on this Python and these versions; others have to pass what all have to.
    del os.environ["TIDEGATE_HYPOTHESIS_PROFILE"]
    run.command("lower bounds", "requirements/lowest.py")
    run.command("vulnerabilities", "requirements/supply.py", "audit")
    run.command("mutants", "-m", "tests.mutation", "--seed", str(seed), "--seconds", "300")
    run.command("other versions of Python", "requirements/versions.py")
    return run.end()


def main(arguments: list[str]) -> int:
    """Run what the arguments ask for and return the exit code."""
    keep_bytecode()
    match arguments:
        case ["--lint"]:
            run = Run()
            run.lint()
            return 0 if run.is_green else 1
        case ["--quick", *rooms]:
            return quick(rooms)
        case ["--nightly"]:
            return nightly()
        case [] | ["--durations"]:
            run = Run()
            run.lint_and_test()
            if arguments:
                run.durations.write()
            return run.end()
    run = Run()
    run.pytest("tests", *arguments)
    return run.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
