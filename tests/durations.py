"""What each test takes: `python3 dev.py test --durations` writes tests/durations.tsv.

Cuts follow this file. A test function that takes a tenth of a second or more, with all its cases,
has a row of its own; all others of a tier share one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

FILE = Path(__file__).with_suffix(".tsv")
SHOWN_S_MIN = 0.1
HEADER = "tier\tseconds\tcases\ttest\n"


@dataclass(slots=True)
class Durations:
    """Seconds and cases of test functions, and how many cases passed, failed or were skipped."""

    seconds: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    cases: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: dict[str, int] = field(
        default_factory=lambda: {"passed": 0, "failed": 0, "skipped": 0}
    )

    def add(self, report: Path) -> None:
        """Add the cases of a JUnit report; an expected failure counts as a skip."""
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            self.outcomes["failed"] += failed
            self.outcomes["skipped"] += skipped
            self.outcomes["passed"] += max(0, int(suite.get("tests", 0)) - failed - skipped)
            for case in suite.iter("testcase"):
                function = case.get("name", "").partition("[")[0]
                noted = case.find("properties/property[@name='tier']")
                tier = "" if noted is None else noted.get("value", "")
                name = tier, f"{case.get('classname')}::{function}"
                self.seconds[name] += float(case.get("time", 0))
                self.cases[name] += 1

    def text(self) -> str:
        """Return the file's text, the slowest test of each tier first."""
        lines = []
        for tier in sorted({tier for tier, _ in self.seconds}):
            names = [name for name in self.seconds if name[0] == tier]
            shown = [name for name in names if self.seconds[name] >= SHOWN_S_MIN]
            others = [name for name in names if self.seconds[name] < SHOWN_S_MIN]
            lines.append(self._row(tier, names, "all"))
            lines += [
                self._row(tier, [name], name[1])
                for name in sorted(shown, key=lambda name: (-self.seconds[name], name))
            ]
            lines.append(self._row(tier, others, f"each below {SHOWN_S_MIN} s"))
        return HEADER + "".join(lines)

    def write(self) -> None:
        """Write tests/durations.tsv."""
        FILE.write_text(self.text())

    def _row(self, tier: str, names: list[tuple[str, str]], title: str) -> str:
        seconds = sum(self.seconds[name] for name in names)
        return f"{tier}\t{seconds:.2f}\t{sum(self.cases[name] for name in names)}\t{title}\n"
