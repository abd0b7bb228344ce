"""The report: the figures of every suite, as JSON for the next check and as a page for readers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.figure import Figure

FOLDER = Path(__file__).parent
REGRESSION = 1.15  # times the last report's; runs on a quiet machine differ by less
BUSY = 10.0  # percent of all cores; above it the page warns
OF_THE_MACHINE = ("CPU", "cores", "system", "Python", "packages")
TITLE = """\
# What Tidegate costs, measured

`python3 dev.py bench report` writes this page and `report.json`, `bench report SUITE` only a part
of them. `python3 dev.py bench check` compares a new run with this one. Servers run on one core, the
load client on another, and CPU times are those of all processes of a server. Ratios hold from
machine to machine, other figures do not.
"""


@dataclass(slots=True)
class Part:
    """The figures of one suite.

    Args:
        figures: in the order of their measurement.
        conditions: machine, versions, date and commit, by name.
        core_speed: CPU seconds of a fixed piece of work, just before.
        seconds: of the whole suite.
    """

    figures: list[Figure]
    conditions: dict[str, str]
    core_speed: float
    seconds: float

    def by_name(self) -> dict[str, Figure]:
        """Return its figures by their names."""
        return {figure.name: figure for figure in self.figures}


@dataclass(slots=True)
class Report:
    """All parts, by the names of their suites."""

    parts: dict[str, Part] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Report:
        """Return the report of a folder; an empty one if there is none."""
        path = folder / "report.json"
        if not path.exists():
            return cls()
        parts = json.loads(path.read_text())["suites"]
        for part in parts.values():
            part["figures"] = [Figure(**figure) for figure in part["figures"]]
        return cls({name: Part(**part) for name, part in parts.items()})

    def write(self, folder: Path) -> None:
        """Write `report.json` and `report.md`."""
        suites = {
            name: {
                "conditions": part.conditions,
                "core_speed": part.core_speed,
                "seconds": part.seconds,
                "figures": [figure._asdict() for figure in part.figures],
            }
            for name, part in self.parts.items()
        }
        text = json.dumps({"suites": suites}, indent=1)
        (folder / "report.json").write_text(text + "\n")
        (folder / "report.md").write_text("\n".join(self._page()))

    def _page(self) -> Iterator[str]:
        yield TITLE
        if not self.parts:
            return
        # Of the first: a report of all suites leaves what it does not measure at the end.
        shared = next(iter(self.parts.values())).conditions
        yield from _table(("", ""), [(name, shared[name]) for name in OF_THE_MACHINE])
        yield "## What is wanted\n"
        wanted = [
            (f"{suite}: {figure.name}", measured(figure), wanted_of(figure), figure.verdict)
            for suite, part in self.parts.items()
            for figure in part.figures
            if figure.verdict
        ]
        met = sum(row[-1] == "met" for row in wanted)
        yield f"{met} of {len(wanted)} figures are what is wanted.\n"
        yield from _table(("figure", "measured", "wanted", ""), wanted)
        for suite, part in self.parts.items():
            yield f"## {suite}\n"
            yield f"{_of_the_run(part, shared)}\n"
            rows = [
                (figure.name, measured(figure), wanted_of(figure), figure.verdict, figure.note)
                for figure in part.figures
            ]
            yield from _table(("figure", "measured", "wanted", "", "note"), rows)


def _of_the_run(part: Part, shared: dict[str, str]) -> str:
    own = part.conditions
    words = [f"{own['date']}, commit {own['commit']}, {part.seconds:.0f} s"]
    words += [f"{name} {own[name]}" for name in OF_THE_MACHINE if own[name] != shared[name]]
    if float(own["busy before"].split()[0]) > BUSY:
        words.append(f"**the machine was busy with other work ({own['busy before']})**")
    return "; ".join(words) + "."


def measured(figure: Figure) -> str:
    """Return value and unit for a reader; nothing where there is only a sentence."""
    if not figure.unit:
        return ""
    digits = 0 if abs(figure.value) >= 100 else 1 if abs(figure.value) >= 10 else 2
    return f"{figure.value:,.{digits}f} {figure.unit}"


def wanted_of(figure: Figure) -> str:
    """Return what is wanted of a figure for a reader."""
    if figure.at_most is not None:
        return f"at most {figure.at_most:,g}"
    return "" if figure.at_least is None else f"at least {figure.at_least:,.10g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of two runs; `worse` is by how many times the second one is."""

    name: str
    before: Figure
    now: Figure
    worse: float

    @property
    def is_regression(self) -> bool:
        """Whether it is worse by more than runs differ."""
        return self.worse > REGRESSION

    def __str__(self) -> str:
        return f"{self.name}: {measured(self.before)} before, {measured(self.now)} now"


def changes(before: Part, now: Part) -> Iterator[Change]:
    """Yield the change of each figure that both runs have and that is compared.

    CPU times are divided by the time of a fixed piece of work, because another core, or the same
    one with busier neighbors, is faster or slower for everything.
    """
    old = before.by_name()
    for name, figure in now.by_name().items():
        if figure.scale == "none" or name not in old or not old[name].value or not figure.value:
            continue
        ratio = figure.value / old[name].value
        if figure.scale == "cpu":
            speed = now.core_speed / before.core_speed
            ratio = ratio * speed if figure.more_is_better else ratio / speed
        yield Change(name, old[name], figure, 1 / ratio if figure.more_is_better else ratio)
