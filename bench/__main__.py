"""`python -m bench`: measure, write the report, or compare with it.

    python -m bench [SUITE]...          print the figures of these suites, or of the report's
    python -m bench report [SUITE]...   measure them, and write bench/report.md and report.json
    python -m bench check [SUITE]...    measure them; fail if one is over 15 % worse than reported
    python -m bench equality            check that Spark and the engine deliver the same rows

The load is on the loopback address, bounded, and ends by itself, also when interrupted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import httpx2

from bench.conditions import conditions, core_speed
from bench.figure import Figure
from bench.report import FOLDER, Part, Report, changes, measured, wanted_of
from bench.servers.process import end_on_signals, missing, take_the_load_core

# In the order of the report. Each module has `figures`, and is imported when its turn comes.
REPORTED = {
    "dashboard": "bench.dashboard",
    "connections": "bench.connections",
    "fanout": "bench.fanout",
    "ingest": "bench.ingest",
    "publishing": "bench.publishing",
    "stalls": "bench.stalls",
    "iterations": "bench.iterations",
    "compression": "bench.compression",
    "workers": "bench.workers",
    "profiles": "bench.profiles",
    "attacks": "bench.attacks",
    "blotter": "bench.blotter",
}
OTHERS = {
    "access": "bench.access",
    "embedding": "bench.embedding",
    "engine": "bench.engine",
    "formats": "bench.formats",
    "openings": "bench.openings",
    "pipeline": "bench.spark.pipeline",
    "polling": "bench.polling",
    "scale": "bench.spark.scale",
    "sizing": "bench.sizing",
    "store": "bench.store",
    "topics": "bench.spark.topics",
}
SUITES = REPORTED | OTHERS
# A check compares with the last report, and leaves out what only a report needs.
CHECKED: dict[str, dict[str, Any]] = {"fanout": {"peers": False}}


def main(words: list[str]) -> int:
    """Do what the words ask for. Return 2 for an unknown name, 1 for a failure."""
    verb, names = (words[0], words[1:]) if words and words[0] in VERBS else ("", words)
    unknown = [name for name in names if name not in SUITES]
    if names == ["equality"] and not verb:
        return int(import_module("bench.spark.equality").main())
    if unknown:
        known = ", ".join(["report", "check", "equality", *SUITES])
        print(f"There is no suite {unknown[0]}; there are {known}.", file=sys.stderr)
        return 2
    if lack := missing():
        print(lack, file=sys.stderr)
        return 1
    end_on_signals()
    try:
        return VERBS[verb](names)
    except KeyboardInterrupt:
        return 130


def show(names: list[str]) -> int:
    """Print the figures of suites."""
    return 0 if all(part for _, part in _measured(names or list(REPORTED))) else 1


def report(names: list[str]) -> int:
    """Write the report; a suite that fails, and those that are not named, keep their parts."""
    found = Report.read(FOLDER)
    is_whole = True
    for name, part in _measured(names or list(REPORTED)):
        if part is None:
            is_whole = False
            continue
        found.parts[name] = part
        found.parts = {name: found.parts[name] for name in SUITES if name in found.parts}
        found.write(FOLDER)  # after each, so that an interruption keeps what is done
    return 0 if is_whole else 1


def check(names: list[str]) -> int:
    """Compare with the report. Measure a suite again before one of its figures is a regression."""
    last = Report.read(FOLDER)
    names = names or [name for name in REPORTED if name in last.parts]
    if not names or any(name not in last.parts for name in names):
        print(
            "The report has nothing to compare with: python3 dev.py bench report", file=sys.stderr
        )
        return 2
    failed = False
    for name in names:
        worse: set[str] | None = None
        for _ in range(2):
            [(_, part)] = _measured([name], CHECKED.get(name, {}))
            if part is None:
                return 1
            found = {c.name: c for c in changes(last.parts[name], part) if c.is_regression}
            # Noise seldom hits the same figure twice; a slower product does.
            worse = set(found) if worse is None else worse & set(found)
            if not worse:
                break
        for each in sorted(worse or ()):
            failed = True
            print(f"WORSE {name}: {found[each]} (x {found[each].worse:.2f})")
    print("Worse than the report." if failed else "Nothing is over 15 % worse than the report.")
    return 1 if failed else 0


VERBS: dict[str, Callable[[list[str]], int]] = {"": show, "report": report, "check": check}


def _measured(
    names: list[str], arguments: dict[str, Any] | None = None
) -> Iterator[tuple[str, Part | None]]:
    """Run suites one after the other, print each figure, and yield each part; None if it failed."""
    for number, name in enumerate(names, start=1):
        around, speed, began = conditions(), core_speed(), time.monotonic()
        if number == 1:
            print("; ".join(f"{key} {value}" for key, value in around.items()), flush=True)
        print(f"--- {name} ({number} of {len(names)})", flush=True)
        if name in REPORTED:  # Spark's need all cores
            take_the_load_core()
        figures: list[Figure] = []
        try:
            for values in import_module(SUITES[name]).figures(**arguments or {}):
                figure = Figure(*values)
                figures.append(figure)
                _print(figure)
        # A peer or a gateway that did not do its part.
        except (OSError, RuntimeError, httpx2.HTTPError) as error:
            print(f"--- {name} failed: {error}", file=sys.stderr, flush=True)
            yield name, None
            continue
        seconds = time.monotonic() - began
        print(f"--- {name} took {seconds:.0f} s", flush=True)
        yield name, Part(figures, around, speed, seconds)


def _print(figure: Figure) -> None:
    ending = f"({wanted_of(figure)}: {figure.verdict})" if figure.verdict else ""
    print(f"{figure.name:60} {measured(figure):>28} {ending} {figure.note}".rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
