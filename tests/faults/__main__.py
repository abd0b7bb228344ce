"""Faults on real processes, and a ledger outside the system that says what must have survived.

`.venv/bin/python -m tests.faults` kills the gateway, and Redis behind it, at random instants under
load; `--catalogue` plays the other faults one by one. Every run is held against the ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.faults.catalogue import FAULTS, Fault, Outcome, play
from tests.faults.crash_runs import CrashRuns, Tally, crash_of
from tests.faults.kinds.redis_faults import redis_killed
from tests.faults.report import Progress, Section, catalogue_rows, crash_rows, print_findings, write
from tests.faults.setups.gateway import CannotRun, on_redis, on_sqlite

RUNS_PER_STORE = 10
PARTS = {
    "sqlite": "kill -9 of the gateway, SQLite store",
    "everysec": "kill -9 of Redis, AOF everysec",
    "always": "kill -9 of Redis, AOF always",
}
PIPELINE, PIPELINES = "The pipeline's processes", ("F25", "F26", "F28")
RUNS = {"sqlite": 200, "everysec": 50, "always": 50}


def main(words: list[str]) -> int:
    """Run what is asked for; 1 if anything was found wrong, or could not be played."""
    given = _arguments(words)
    play_all = _catalogue if given.catalogue else _crashes
    return 1 if play_all(given) else 0


def _crashes(given: argparse.Namespace) -> int:
    """How much was found wrong."""
    broken = 0
    for part in given.only or PARTS:
        runs = given.runs or RUNS[part]
        progress = Progress(PARTS[part], runs)
        tally = Tally()
        try:
            asyncio.run(crashes(tally, part, runs, given.seconds, given.seed, progress.step))
        except CannotRun as reason:
            print(f"{PARTS[part]}: not run, {reason}")
            broken += 1
            continue
        except KeyboardInterrupt:
            print(f"\nEnded after {tally.runs} of {runs} crashes.")
            broken += 1
            runs = tally.runs
        words = f"--only {part} --runs {runs} --seconds {given.seconds:g} --seed {given.seed}"
        _publish(given, Section(PARTS[part], _command(words), crash_rows(tally)))
        print_findings(tally.findings)
        broken += len(tally.findings)
    return broken


def _catalogue(given: argparse.Namespace) -> int:
    """How many faults were not passed, or not played."""
    chosen = [fault for fault in FAULTS if fault.name.startswith(tuple(given.fault or "F"))]
    progress = Progress("the catalogue", len(chosen))
    outcomes: list[tuple[Fault, Outcome]] = []
    for fault in chosen:
        outcome = asyncio.run(play(fault, given.seed))
        outcomes.append((fault, outcome))
        progress.step()
    words = " ".join(["--catalogue", *(f"--fault {name}" for name in given.fault or ())])
    command = _command(f"{words} --seed {given.seed}")
    for title, is_pipelines in (("The catalog of faults", False), (PIPELINE, True)):
        rows = [each for each in outcomes if each[0].name.startswith(PIPELINES) is is_pipelines]
        if rows:
            _publish(given, Section(title, command, catalogue_rows(rows)))
    for fault, outcome in outcomes:
        print_findings([f"{fault.name}: {finding}" for finding in outcome.findings])
    return sum(bool(outcome.findings or outcome.not_run) for _, outcome in outcomes)


async def crashes(
    tally: Tally, part: str, runs: int, load_s_max: float, seed: int, advance: Callable[[], None]
) -> None:
    """So many crashes, on a new store after every few; the tally has those of finished stores.

    Raises:
        CannotRun: there is no Redis for a part that needs one.
    """
    stage_of = on_sqlite if part == "sqlite" else partial(on_redis, fsync=part)
    while tally.runs < runs:
        length = min(RUNS_PER_STORE, runs - tally.runs)
        async with stage_of(seed) as setup:
            crash = crash_of(setup.gateway) if part == "sqlite" else redis_killed(setup)
            crash_runs = CrashRuns(setup.gateway.address, crash, seed)
            tally.add(await crash_runs.run(length, (0.01, load_s_max), advance))
            tally.findings += setup.findings
        seed += 1


def _publish(given: argparse.Namespace, section: Section) -> None:
    print(section.text(), flush=True)
    if given.write is not None:
        write(given.write, section)


def _command(words: str) -> str:
    return f".venv/bin/python -m tests.faults {words}"


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--runs", type=int, metavar="N", help="crashes of each kind (200, 50, 50)")
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="of load before a crash, at most (0.5)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first crash_runs (1)")
    parser.add_argument("--only", action="append", choices=[*PARTS], help="only these crashes")
    parser.add_argument("--catalogue", action="store_true", help="play the other faults instead")
    parser.add_argument(
        "--fault", action="append", metavar="F7", help="of the catalogue only what begins so"
    )
    parser.add_argument(
        "--write", type=Path, metavar="PAGE.md", help="put the tables into a page as well"
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
