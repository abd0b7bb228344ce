"""`python -m bench`: which suites run, what is written, and when a check fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import __main__ as command
from bench.figure import Figure
from bench.report import Report

pytestmark = pytest.mark.nightly


@pytest.fixture
def suites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, list[float]]:
    """Suites of one ratio each, by name: the values of their runs, the last one for ever."""
    values: dict[str, list[float]] = {"one": [1.0], "two": [1.0], "broken": []}

    def imported(name: str) -> Any:
        def figures(**arguments: Any) -> Iterator[Figure]:
            left = values[name]
            if not left:
                raise RuntimeError("a server has ended")
            yield Figure("cost", left.pop(0) if len(left) > 1 else left[0], "x", scale="ratio")

        return SimpleNamespace(figures=figures)

    monkeypatch.setattr(command, "REPORTED", {"one": "one", "two": "two"})
    monkeypatch.setattr(command, "SUITES", {name: name for name in values})
    monkeypatch.setattr(command, "import_module", imported)
    # Neither the machine nor the process of the tests is measured or changed.
    monkeypatch.setattr(command, "conditions", lambda: dict.fromkeys(CONDITIONS, "0 %"))
    monkeypatch.setattr(command, "core_speed", lambda: 1.0)
    for name in ("take_the_load_core", "end_on_signals"):
        monkeypatch.setattr(command, name, lambda: None)
    monkeypatch.setattr(command, "missing", lambda: "")
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    return values


CONDITIONS = ("CPU", "cores", "system", "Python", "packages", "date", "commit", "busy before")


def costs(folder: Path) -> dict[str, float]:
    """The only figure of each suite in the report."""
    return {name: part.figures[0].value for name, part in Report.read(folder).parts.items()}


def test_an_unknown_suite_is_wrong_usage(
    suites: dict[str, list[float]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["three"]) == 2
    assert "There is no suite three; there are report, check" in capsys.readouterr().err


def test_what_the_machine_lacks_is_one_sentence(
    suites: dict[str, list[float]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "missing", lambda: "The benchmarks need cc.")
    assert command.main([]) == 1
    assert capsys.readouterr().err == "The benchmarks need cc.\n"


def test_suites_are_shown_and_nothing_is_written(
    suites: dict[str, list[float]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([]) == 0
    assert "1.00 x" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_report_of_one_suite_keeps_the_others(
    suites: dict[str, list[float]], tmp_path: Path
) -> None:
    assert command.main(["report"]) == 0
    suites["two"] = [5.0]
    assert command.main(["report", "two"]) == 0
    assert costs(tmp_path) == {"one": 1.0, "two": 5.0}


def test_a_suite_that_fails_keeps_its_part_and_stops_no_other(
    suites: dict[str, list[float]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["report"])
    suites |= {"one": [], "two": [5.0]}
    assert command.main(["report"]) == 1
    assert costs(tmp_path) == {"one": 1.0, "two": 5.0}
    assert "one failed: a server has ended" in capsys.readouterr().err


def test_a_check_fails_on_what_is_worse_twice(
    suites: dict[str, list[float]], capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["report"])
    suites["two"] = [1.2]
    assert command.main(["check"]) == 1
    assert "WORSE two: cost: 1.00 x before, 1.20 x now (x 1.20)" in capsys.readouterr().out


def test_a_check_measures_again_before_it_fails(suites: dict[str, list[float]]) -> None:
    command.main(["report"])
    suites["two"] = [1.2, 1.1]
    assert command.main(["check"]) == 0


def test_a_check_of_a_suite_that_fails_fails(suites: dict[str, list[float]]) -> None:
    command.main(["report"])
    suites["one"] = []
    assert command.main(["check", "one"]) == 1


def test_a_check_needs_a_report(
    suites: dict[str, list[float]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["check"]) == 2
    assert "nothing to compare with" in capsys.readouterr().err


def test_every_suite_has_figures() -> None:
    """Those of Spark are not imported: that takes seconds."""
    for name, module in command.SUITES.items():
        path = Path(command.__file__).parents[1] / (module.replace(".", "/") + ".py")
        assert "def figures(" in path.read_text(), name
