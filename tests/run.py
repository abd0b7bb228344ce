"""What `python3 dev.py test` runs once everything is set up: the linters, then pytest.

Tests that start real processes and watch the clock run after the others and one at a time; those of
Spark wait as long as they work and mind no neighbour: two at a time, and the files whole, as each
process starts a Spark of its own once. The last line printed is the sum over all runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
CHECKED = ("tidegate", "pyspark_tidegate", "tests", "bench", "examples", "requirements", "dev.py")
PRODUCT = ("app", "clients", "conflation", "keys", "pipeline", "pyspark_tidegate")
RUNS = [
    ["-n", "2", "-m", "not (spark or browser or slow)"],
    ["-n", "2", "--dist", "loadfile", "-m", "spark"],
    ["-m", "(browser or slow) and not spark"],
]
NOTHING_SELECTED = 5  # pytest's exit code when a run's markers fit no test


def lint() -> bool:
    """Runs every linter, the later ones also after a failure; true when all are content.

    The figures of the product come last.
    """
    typed = [name for name in CHECKED if name.endswith(".py") or any((ROOT / name).rglob("*.py"))]
    content = True
    for name, *arguments in (
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        ["mypy", *typed],
        ["lint-imports"],
        ["deptry", *PRODUCT],
    ):
        print(f"--- {name} {arguments[0] if name == 'ruff' else ''}", flush=True)
        content &= subprocess.run([BIN / name, *arguments], cwd=ROOT).returncode == 0
    print("--- figures", flush=True)
    figures = [sys.executable, "-m", "tests.architecture.figures"]
    content &= subprocess.run(figures, cwd=ROOT).returncode == 0
    return content


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


def main(arguments: list[str]) -> int:
    """Linters and all tests; with arguments, only the tests that they select."""
    if arguments == ["--lint"]:
        return 0 if lint() else 1
    if arguments:
        return run_tests([arguments], content=True)
    content = lint()
    return run_tests(RUNS, content)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
