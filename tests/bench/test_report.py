"""The report says what is met, keeps what other suites wrote, and finds what got worse."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.figure import Figure, percentile
from bench.report import Part, Report, changes

pytestmark = pytest.mark.nightly

CONDITIONS = {
    "CPU": "EPYC",
    "cores": "2",
    "system": "Linux",
    "Python": "3.11.7",
    "packages": "uvicorn 1",
    "date": "2026-11-22 22:00 UTC",
    "commit": "abc",
    "busy before": "3 %",
}


def part(
    *figures: Figure, core_speed: float = 1.0, conditions: dict[str, str] = CONDITIONS
) -> Part:
    """A suite's part."""
    return Part(list(figures), conditions, core_speed, 1.0)


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("f", 8.0, "%", at_most=8), "met"),
        (Figure("f", 8.1, "%", at_most=8), "not met"),
        (Figure("f", 1e6, "/s", at_least=1e6), "met"),
        (Figure("f", 1e6 - 1, "/s", at_least=1e6), "not met"),
        (Figure("f", 8.1, "%"), ""),
    ],
)
def test_a_verdict_is_what_is_wanted_beside_what_is_measured(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(n) for n in range(1_000)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.999, 1.0)] == [0, 500, 999, 999]


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = Report({"a": part(Figure("f", 1.5, "us", 2, note="n", scale="cpu"))})
    report.write(tmp_path)
    assert Report.read(tmp_path) == report


def test_without_a_report_there_are_no_parts(tmp_path: Path) -> None:
    assert Report.read(tmp_path).parts == {}


def test_the_page_has_every_figure_and_sums_the_verdicts_up(tmp_path: Path) -> None:
    figures = Figure("one", 1.5, "us", 2), Figure("two", 2.5, "us", 2), Figure("three", 3, "us")
    Report({"suite": part(*figures)}).write(tmp_path)
    page = (tmp_path / "report.md").read_text()
    assert "1 of 2 figures are what is wanted." in page
    assert "| suite: two | 2.50 us | at most 2 | not met |" in page
    assert "| three | 3.00 us |  |  |  |" in page
    assert all(CONDITIONS[name] in page for name in ("CPU", "Python", "packages", "date"))
    assert "busy" not in page


def test_the_page_warns_of_a_busy_machine_and_of_another_one(tmp_path: Path) -> None:
    conditions = CONDITIONS | {"busy before": "40 %", "CPU": "Xeon"}
    busy = part(Figure("f", 1, "us"), conditions=conditions)
    Report({"a": part(), "b": busy}).write(tmp_path)
    page = (tmp_path / "report.md").read_text()
    assert "busy with other work (40 %)" in page
    assert "CPU Xeon" in page


def worse(before: Figure, now: Figure, core_speed: float = 1.0) -> float | None:
    """By how many times a figure is worse, on a machine whose core takes so much longer."""
    found = list(changes(part(before), part(now, core_speed=core_speed)))
    return round(found[0].worse, 3) if found else None


def test_a_ratio_is_compared_as_it_is() -> None:
    before = Figure("f", 2, "x", scale="ratio")
    assert worse(before, before._replace(value=2.4), core_speed=9) == 1.2


def test_cpu_time_is_compared_after_the_speed_of_the_core() -> None:
    before = Figure("f", 10, "us CPU", scale="cpu")
    assert worse(before, before._replace(value=20), core_speed=2) == 1
    assert worse(before, before._replace(value=20), core_speed=1) == 2


def test_where_more_is_better_less_is_worse() -> None:
    before = Figure("f", 100, "messages/CPU s", at_least=1, scale="cpu")
    assert worse(before, before._replace(value=50), core_speed=1) == 2
    assert worse(before, before._replace(value=50), core_speed=2) == 1


@pytest.mark.parametrize(
    "now",
    [
        Figure("f", 9, "ms"),  # wall time, which the neighbours of a machine decide
        Figure("other", 9, "x", scale="ratio"),
    ],
)
def test_what_cannot_be_compared_is_left_out(now: Figure) -> None:
    assert worse(Figure("f", 1, "x", scale="ratio"), now) is None


@pytest.mark.parametrize(("value", "is_regression"), [(1.14, False), (1.16, True), (0.5, False)])
def test_over_15_percent_worse_is_a_regression(value: float, is_regression: bool) -> None:
    before = Figure("f", 1, "x", scale="ratio")
    [change] = changes(part(before), part(before._replace(value=value)))
    assert change.is_regression == is_regression
