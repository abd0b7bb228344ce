"""Measures the tests by mutants of keys/ and conflation/: `python -m tests.mutation --help`.

Each mutant of a sample is applied to a private copy of the checkout, in memory, and meets the tests
that execute its line. The score is the share of mutants that a test fails for.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.mutation.mutants import Mutant

HERE = "TIDEGATE_MUTATION_COPY"
"""Names the checkout of which the current folder is a copy."""
TIERS = {"default": "not system and not nightly", "all": "not system"}
SEARCHED = (
    "tests/keys",
    "tests/conflation",
    "tests/docs/test_semantics_examples.py",
    "tests/docs/test_semantics_requests.py",
    "tests/golden",
    "tests/simulation",
)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--seed", type=int, help="draws the same sample again")
    parser.add_argument("--sample", type=int, default=300, help="how many mutants (default: 300)")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop after so long, recording excluded"
    )
    parser.add_argument("--tier", choices=TIERS, default="default", help="which tests may kill")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--map", type=Path, help="keeps which test executes which line")
    parser.add_argument("--tests", nargs="+", default=list(SEARCHED), help="files and folders")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="tests of the sample what begins so"
    )
    parser.add_argument("--write", action="store_true", help="write tests/mutation/score.md")
    return parser.parse_args(arguments)


def copy_checkout(root: Path, target: Path) -> None:
    """Copy all files that Git knows or could know of."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if os.path.lexists(root / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)


def digest(root: Path) -> str:
    """What the map of tests depends on."""
    found = hashlib.sha256()
    for folder in ("keys", "conflation", "app", "tests"):
        for path in sorted((root / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def measure(options: argparse.Namespace, root: Path, checkout: Path) -> int:
    """Draw a sample, test it, and print the score."""
    from tests.mutation import mutants, running, score
    from tests.mutation.recording import TestMap

    seed = SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    drawn = mutants.draw(root, seed, options.sample)
    drawn = [each for each in drawn if str(each).startswith(tuple(options.only))]
    print(f"seed {seed}: {len(drawn)} mutants, tier {options.tier}", flush=True)
    running.preload()
    struck = score.read_struck()
    outcomes: list[running.Outcome] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        task = running.Task(root, Path(name), options.tests, TIERS[options.tier], options.workers)
        kept = options.map and options.map.with_suffix(f".{digest(root)}")
        if kept and kept.exists():
            task.tests = TestMap.load(kept)
        else:
            task.tests = running.record(task)
            if kept:
                task.tests.save(kept)
        seconds = sum(task.tests.seconds.values())
        print(f"{len(task.tests.seconds)} tests take {seconds:.0f} CPU seconds", flush=True)

        def report(outcome: running.Outcome) -> None:
            outcomes.append(outcome)
            print(f"{len(outcomes)}/{len(drawn)} {outcome}", flush=True)

        until = time.monotonic() + options.seconds
        imported = []
        for some in _slices(drawn, 50):
            if time.monotonic() < until:
                imported += running.run_within_functions(task, some, report)
        for some in _slices(imported, 2 * options.workers):
            if time.monotonic() < until:
                running.run_after_import(task, some, report)
    arguments = f"--seed {seed} --sample {options.sample} --tier {options.tier}"
    text = score.summary(root, checkout, arguments, outcomes, struck)
    print(text)
    if options.write:
        score.write(checkout, text)
    print(Counter(outcome.state for outcome in outcomes), f"{time.monotonic() - begun:.0f} s")
    if score.share_killed(root, outcomes, struck) < score.LEAST:
        print(f"Tests have to kill {score.LEAST:.0%} of the mutants: write tests for survivors.")
        return 1
    return 0


def _slices(items: list[Mutant], size: int) -> list[list[Mutant]]:
    return [items[first : first + size] for first in range(0, len(items), size)]


def main(arguments: list[str]) -> int:
    """Copy the checkout, then measure there."""
    options = parse_arguments(arguments)
    if HERE in os.environ:
        return measure(options, Path.cwd().resolve(), Path(os.environ[HERE]))
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory(prefix="tidegate-mutation-") as name:
        copy_checkout(root, Path(name))
        if options.map:
            arguments = [*arguments, "--map", str(options.map.resolve())]
        environment = {**os.environ, HERE: str(root), "PYTHONDONTWRITEBYTECODE": ""}
        if options.tier == "default":  # its searches are those of `dev.py test`, each night too
            environment["TIDEGATE_HYPOTHESIS_PROFILE"] = "default"
            environment.pop("TIDEGATE_TEST_SEED", None)
        command = [sys.executable, "-m", "tests.mutation", *arguments]
        return subprocess.run(command, cwd=name, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
