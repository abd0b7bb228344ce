"""Targets of fuzzing, and the loop that runs them.

A target makes inputs from a random source, and checks one. It raises `AssertionError`, or anything
that its code should not raise; both are findings. One seed always makes the same inputs.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

FINDINGS_MAX: Final = 10
LOOKS_AT_CLOCK: Final = 32
"""Executions between two looks at the clock."""


@dataclass(frozen=True)
class Target:
    """One piece of code that takes what clients send."""

    name: str
    make: Callable[[Random], Any]
    check: Callable[[Any], object]
    cpu_s_max: float = 1.0
    """More CPU for one input is a finding, too: a hang."""


@dataclass(frozen=True)
class Finding:
    """An input that a target does not take as it should."""

    target: str
    given: object
    trace: str

    def __str__(self) -> str:
        return f"--- {self.target}: {self.given!r}\n{self.trace}"


@dataclass
class Outcome:
    """The result of a run of one target."""

    target: str
    executions: int = 0
    accepted: int = 0
    findings: list[Finding] = field(default_factory=list)


def run(
    target: Target,
    seed: int,
    *,
    seconds: float | None = None,
    executions: int | None = None,
) -> Outcome:
    """Fuzz one target for so many seconds of CPU, or so many inputs.

    A check that returns something true says that its input was accepted: a target which accepts
    nothing tests its refusals alone.
    """
    random, outcome, seen = Random(f"{target.name} {seed}"), Outcome(target.name), set[str]()
    ends = None if seconds is None else time.process_time() + seconds
    while executions is None or outcome.executions < executions:
        looks = ends is not None and outcome.executions % LOOKS_AT_CLOCK == 0
        if looks and time.process_time() >= (ends or 0):
            break
        given = target.make(random)
        outcome.executions += 1
        try:
            is_accepted, took = _timed(target, given)
            outcome.accepted += is_accepted
            assert took <= target.cpu_s_max, f"it took {took:.2f} s"
        except Exception as error:  # whatever it is, it is the finding
            place = _place(error)
            if place not in seen:
                seen.add(place)
                trace = "".join(traceback.format_exception(error, limit=-6))
                outcome.findings.append(Finding(target.name, given, trace))
            if len(seen) >= FINDINGS_MAX:
                break
    return outcome


def _timed(target: Target, given: object) -> tuple[bool, float]:
    """Return whether an input is accepted, and the CPU that its check takes, in seconds.

    What a check does not cause, as a collection of all that the process holds, is not there each
    time: the least of three counts.
    """
    took = math.inf
    for _ in range(3):
        begins = time.process_time()
        is_accepted = bool(target.check(given))
        took = min(took, time.process_time() - begins)
        if took <= target.cpu_s_max:
            break
    return is_accepted, took


def _place(error: Exception) -> str:
    """Two inputs that fail in one place, in one way, are one finding."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} {last.filename} {last.lineno}"
