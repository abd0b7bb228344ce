"""What runs came to, as tables that read on a terminal and on a page."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.faults.catalogue import Fault, Outcome
from tests.faults.checks.oracle import Kind
from tests.faults.crash_runs import Tally

ROOT = Path(__file__).resolve().parents[2]
FINDINGS_SHOWN_MAX = 20
EVERY_S = 15.0

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the evidence: its title, the command that makes it, its rows."""

    title: str
    command: str
    rows: Sequence[Row]

    def text(self) -> str:
        """As Markdown."""
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in self.rows]
        rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
        line = f"`{self.command}`, {_where()}."
        return "\n".join([f"## {self.title}", "", line, "", lines[0], rule, *lines[1:], ""])


class Progress:
    """How far it is: one line that is written anew on a terminal, some lines elsewhere."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._began_at = self._printed_at = time.monotonic()

    def step(self) -> None:
        """One more is done."""
        self._done += 1
        now = time.monotonic()
        live = sys.stderr.isatty()
        if live or self._done == self._total or now - self._printed_at > EVERY_S:
            self._printed_at = now
            text = f"{self._what}: {self._done} of {self._total}, {now - self._began_at:.0f} s"
            ending = "" if live and self._done < self._total else "\n"
            print(f"\r{text}\x1b[K" if live else text, end=ending, file=sys.stderr, flush=True)


def crash_rows(tally: Tally) -> list[Row]:
    """The sums and figures of runs."""
    sums = tally.sums
    counted = [(name, f"{count:,}") for name, count in sums.items() if name not in set(Kind)]
    broken = [(str(kind), f"{sums[kind]:,}") for kind in Kind]
    return [
        ("what", "how many"),
        ("crashes", f"{tally.runs:,}"),
        *counted,
        *broken,
        ("everything that was found wrong", f"{len(tally.findings):,}"),
        ("way up until ready, p50 / p99 / most", _seconds(tally.ready_s)),
        ("then every subscriber has caught up after", _seconds(tally.caught_up_s)),
    ]


def catalogue_rows(outcomes: Sequence[tuple[Fault, Outcome]]) -> list[Row]:
    """A line for each fault."""
    rows: list[Row] = [("", "fault", "has to hold", "result", "figures")]
    for fault, outcome in outcomes:
        wrong = f"**{len(outcome.findings)} wrong**" if outcome.findings else "passed"
        result = f"not run: {outcome.not_run}" if outcome.not_run else wrong
        figures = "; ".join([*outcome.figures, *_acknowledged(outcome.tally)])
        rows.append((fault.name, fault.what, fault.passes, result, figures))
    return rows


def print_findings(findings: Sequence[str]) -> None:
    """The first of what was wrong."""
    for finding in findings[:FINDINGS_SHOWN_MAX]:
        print(f"- {finding}")
    if len(findings) > FINDINGS_SHOWN_MAX:
        print(f"- and {len(findings) - FINDINGS_SHOWN_MAX} more")


def write(path: Path, section: Section) -> None:
    """Put a section into a page, in place of the one with its title, or at the end."""
    page = path.read_text("utf-8")
    old = re.compile(rf"^## {re.escape(section.title)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    text = section.text() + "\n"
    page = old.sub(lambda _: text, page) if old.search(page) else f"{page.rstrip()}\n\n{text}"
    path.write_text(page.rstrip() + "\n", "utf-8")


def _acknowledged(tally: Tally) -> list[str]:
    count = tally.sums["messages acknowledged as persisted"]
    return [f"{count:,} messages acknowledged"] if count else []


def _seconds(found: Sequence[float]) -> str:
    if not found:
        return "none"
    ordered = sorted(found)
    middle, late = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"{middle:.2f} s / {late:.2f} s / {ordered[-1]:.2f} s"


def _where() -> str:
    """The commit, the day and what kind of machine it was."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    commit = asked.stdout.strip() or "no commit"
    machine = f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores"
    day = f"{datetime.now(UTC):%Y-%m-%d}"  # noqa: TID251 - a report bears its date
    return f"commit {commit}, {day}, {machine}, Python {platform.python_version()}"
