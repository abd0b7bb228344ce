"""Golden transcripts: what the engine and the gateway answer to fixed seeds.

    python -m tests.golden check                    compare the engine with the recorded hashes
    python -m tests.golden record                   write the hashes anew
    python -m tests.golden show KIND SEED           print a transcript of the engine or simulation
    python -m tests.golden diff FOLDER KIND SEED    compare it with that of another checkout

A restructuring gives the same hashes. Where it does not, find the seed and explain its difference;
`check` names the blocks, `diff` with a block such as `100-150` looks at each of its seeds.
Exit code 0: all as recorded, or no difference. 1: something differs.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.golden.record import ENGINE, TRANSCRIPTS

CONTEXT_LINES = 12


def main(arguments: Sequence[str] | None = None) -> int:
    """One command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("check", "record"):
        one = commands.add_parser(name)
        one.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    show = commands.add_parser("show")
    diff = commands.add_parser("diff")
    diff.add_argument("folder", type=Path)
    for one in (show, diff):
        one.add_argument("kind", choices=TRANSCRIPTS)
        one.add_argument("seeds", type=_seeds, metavar="SEED")
    given = parser.parse_args(arguments)
    match given.command:
        case "check":
            return _check(given.jobs)
        case "record":
            ENGINE.record(jobs=given.jobs)
            return 0
        case "show":
            _write(line for seed in given.seeds for line in TRANSCRIPTS[given.kind](seed))
            return 0
    return _diff(given.folder, given.kind, given.seeds)


def _seeds(text: str) -> range:
    """One seed, or a block as `check` names it."""
    start, _, stop = text.partition("-")
    return range(int(start), int(stop) if stop else int(start) + 1)


def _check(jobs: int) -> int:
    status = 0
    for seeds in ENGINE.differing(ENGINE.blocks, jobs=jobs):
        _write([f"{seeds.start}-{seeds.stop} differs"])
        status = 1
    return status


def _diff(folder: Path, kind: str, seeds: Iterable[int]) -> int:
    """Each seed's first difference, with what leads to it."""
    status = 0
    for seed in seeds:
        ours = list(TRANSCRIPTS[kind](seed))
        theirs = _of_checkout(folder, kind, seed)
        if ours == theirs:
            continue
        status = 1
        _write(
            difflib.unified_diff(
                theirs, ours, f"{folder} {seed}", f"here {seed}", n=CONTEXT_LINES, lineterm=""
            )
        )
    return status


def _of_checkout(folder: Path, kind: str, seed: int) -> list[str]:
    """What the code in another folder says, by its own generator."""
    command = [sys.executable, "-m", "tests.golden", "show", kind, str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout.rstrip("\n").split("\n")


def _write(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
