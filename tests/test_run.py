"""The whole run sums up its parts, and no part can be missed in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev import ROOT
from tests.durations import Durations
from tests.run import main, room_of

PASSES = "def test_passes(): ...\n"
FAILS = "def test_fails(): assert False\n"
SKIPS = "import pytest\ndef test_skips(): pytest.skip('no outside')\n"
XFAILS = "import pytest\n@pytest.mark.xfail\ndef test_expects(): assert False\n"


def run_tests(folder: Path, text: str, require_all: str = "") -> tuple[int, list[str]]:
    """Exit code and printed lines of a run over one test file."""
    file = folder / "test_inner.py"
    file.write_text(text)
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.run", str(file), "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**environment, "TIDEGATE_REQUIRE_ALL": require_all},
        capture_output=True,
        text=True,
    )
    return ended.returncode, ended.stdout.splitlines()


UNIT = '<properties><property name="tier" value="unit"/></properties>'
SYSTEM = UNIT.replace("unit", "system")
REPORT = f"""<testsuites><testsuite tests="4" failures="1" errors="0" skipped="1">
<testcase classname="tests.keys.test_path" name="test_a[1]" time="0.5">{UNIT}</testcase>
<testcase classname="tests.keys.test_path" name="test_a[2]" time="0.25">{UNIT}</testcase>
<testcase classname="tests.keys.test_path" name="test_b" time="0.01">{UNIT}<failure/></testcase>
<testcase classname="tests.keys.test_path" name="test_c" time="1.5">{SYSTEM}<skipped/></testcase>
</testsuite></testsuites>"""


def test_durations_are_those_of_functions_with_the_slowest_first(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    durations = Durations()
    durations.add(tmp_path / "report.xml")
    assert durations.outcomes == {"passed": 2, "failed": 1, "skipped": 1}
    assert durations.text().splitlines()[1:] == [
        "system\t1.50\t1\tall",
        "system\t1.50\t1\ttests.keys.test_path::test_c",
        "system\t0.00\t0\teach below 0.1 s",
        "unit\t0.76\t3\tall",
        "unit\t0.75\t2\ttests.keys.test_path::test_a",
        "unit\t0.01\t1\teach below 0.1 s",
    ]


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("conflation/boards/board.py", "conflation/boards"),
        ("conflation/engine.py", "conflation"),
        ("app/http/routes/sow.py", "app/http"),
        ("tests/keys/test_path.py", "keys"),
        ("README.md", None),
    ],
)
def test_a_changed_file_is_tested_in_its_room(path: str, room: str | None) -> None:
    assert room_of(path) == room


def test_a_room_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "keyes"]) == 2
    assert "There is no tests/keyes" in capsys.readouterr().out


@pytest.mark.nightly  # it starts pytest
@pytest.mark.parametrize(
    ("text", "code", "last"),
    [
        (PASSES, 0, "1 passed, 0 failed, 0 skipped"),
        (PASSES + SKIPS, 0, "1 passed, 0 failed, 1 skipped"),
        (PASSES + FAILS, 1, "1 passed, 1 failed, 0 skipped"),
        ("import nothing_of_that_name\n", 1, "0 passed, 1 failed, 0 skipped"),
        ("", 1, "0 passed, 0 failed, 0 skipped"),
    ],
)
def test_the_last_line_is_the_sum(tmp_path: Path, text: str, code: int, last: str) -> None:
    ended, lines = run_tests(tmp_path, text)
    assert (ended, lines[-1]) == (code, last)


@pytest.mark.nightly
@pytest.mark.parametrize("text", [SKIPS, XFAILS])
def test_a_skip_fails_the_run_where_all_is_required(tmp_path: Path, text: str) -> None:
    ended, lines = run_tests(tmp_path, PASSES + text, require_all="1")
    assert (ended, lines[-1]) == (1, "1 passed, 0 failed, 1 skipped")
    assert any("TIDEGATE_REQUIRE_ALL" in line for line in lines)
