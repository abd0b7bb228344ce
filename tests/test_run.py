"""The whole run sums up its parts, and no part can be missed in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev import ROOT

pytestmark = pytest.mark.nightly  # each test starts pytest

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


@pytest.mark.parametrize("text", [SKIPS, XFAILS])
def test_a_skip_fails_the_run_where_all_is_required(tmp_path: Path, text: str) -> None:
    ended, lines = run_tests(tmp_path, PASSES + text, require_all="1")
    assert (ended, lines[-1]) == (1, "1 passed, 0 failed, 1 skipped")
    assert any("TIDEGATE_REQUIRE_ALL" in line for line in lines)
