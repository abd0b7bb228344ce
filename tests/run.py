"""What `python3 dev.py test` runs once everything is set up: the linters, then pytest.

No test minds a neighbour, so four run at a time: on two cores, as many wait for a process or a
timer. Those of Spark run last, two at a time, as each process starts a Spark of its own once. The
last line printed is the sum over all runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

from dev import ROOT, keep_bytecode

BIN = Path(sys.executable).parent
CHECKED = ("tidegate", "pyspark_tidegate", "tests", "bench", "examples", "requirements", "dev.py")
PRODUCT = ("app", "clients", "conflation", "keys", "pipeline", "pyspark_tidegate")
RUNS = [
    ["-n", "4", "--dist", "worksteal", "-m", "not spark"],
    ["-n", "2", "--dist", "worksteal", "-m", "spark"],
]
NOTHING_SELECTED = 5  # pytest's exit code when a run's markers fit no test


def lint() -> bool:
    """Run every linter, two at a time, and print what each says; true when all are content."""
    typed = [name for name in CHECKED if name.endswith(".py") or any((ROOT / name).rglob("*.py"))]
    commands: list[list[str | Path]] = [
        # What takes longest comes first, because a single core checks the types.
        [BIN / "mypy", *typed],
        [BIN / "ruff", "check"],
        [BIN / "ruff", "format", "--check"],
        [BIN / "lint-imports"],
        [BIN / "deptry", *PRODUCT],
        [sys.executable, "-m", "tests.architecture.figures"],
    ]
    content = True
    with ThreadPoolExecutor(2) as pool:
        for command, ended in zip(commands, pool.map(_linted, commands), strict=True):
            words = [Path(command[0]).name, *map(str, command[1:3])]
            print(f"--- {' '.join(words)}\n{ended.stdout}", end="", flush=True)
            content &= ended.returncode == 0
    return content


def _linted(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def count_tests(report: Path) -> dict[str, int]:
    """Passed, failed and skipped in a JUnit report; an expected failure counts as a skip."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        counts["failed"] += failed
        counts["skipped"] += skipped
        counts["passed"] += max(0, int(suite.get("tests", 0)) - failed - skipped)
    return counts


def run_tests(runs: list[list[str]], content: bool) -> int:
    """Runs pytest once for each list of arguments and prints the sum; the answer is an exit code.

    `content` says whether all went well before. No test at all is a failure, and so is any skip
    where TIDEGATE_REQUIRE_ALL=1 says that nothing may be missing.
    """
    total = {"passed": 0, "failed": 0, "skipped": 0}
    with tempfile.TemporaryDirectory() as folder:
        for number, arguments in enumerate(runs):
            report = Path(folder, f"{number}.xml")
            command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *arguments]
            code = subprocess.run(command, cwd=ROOT).returncode
            content &= code in (0, NOTHING_SELECTED)
            if report.exists():
                for kind, count in count_tests(report).items():
                    total[kind] += count
    if total["skipped"] and os.environ.get("TIDEGATE_REQUIRE_ALL") == "1":
        print("Tests were skipped, and TIDEGATE_REQUIRE_ALL=1 allows none.")
        content = False
    if not content and not total["failed"]:
        print("No test failed, but the run did: see above.")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**total), flush=True)
    return 0 if content and total["passed"] else 1


def prepare_spark() -> None:
    """Keep the classes of Spark's Java, once: the tests start fifty of them."""
    from tidegate.pipeline.spark.jvm import class_archive

    archive = class_archive()
    if archive is not None and not archive.exists():
        subprocess.run([BIN / "tidegate", "pipeline", "prepare"], cwd=ROOT)


def main(arguments: list[str]) -> int:
    """Linters and all tests; with arguments, only the tests that they select."""
    keep_bytecode()
    if arguments == ["--lint"]:
        return 0 if lint() else 1
    if arguments:
        return run_tests([arguments], content=True)
    content = lint()
    prepare_spark()
    return run_tests(RUNS, content)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
