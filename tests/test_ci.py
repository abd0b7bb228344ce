"""The continuous check installs what is missing, once, and then allows no skip."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dev import ROOT
from tests.docs.site import block_run_by

pytestmark = pytest.mark.system

SHELL = ("bash", "dirname", "sed", "head", "id")
PROGRAMS = ("redis-server", "mosquitto", "chromium", "curl", "nginx", "node")
PYTHON = 'case "$*" in *version_info*) exit {old};; *ensurepip*) exit {bare};; esac\n'
PYTHON += 'echo "$TIDEGATE_REQUIRE_ALL" "$@"'


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A PATH with a shell, a Python that says how it was called, and a package manager's log."""
    for tool in SHELL:
        where = shutil.which(tool)
        assert where is not None
        (tmp_path / tool).symlink_to(where)
    command(tmp_path, "python3", PYTHON.format(old=0, bare=0))
    command(tmp_path, "java", "echo 'openjdk version \"17.0.15\"' >&2")
    for program in PROGRAMS:
        command(tmp_path, program, "")
    command(tmp_path, "apt-get", 'echo "$@" >> "${0%/*}/apt.log"')
    command(tmp_path, "sudo", 'shift; "$@"')
    return tmp_path


def command(machine: Path, name: str, text: str) -> None:
    (machine / name).write_text(f"#!/bin/bash\n{text}\n")
    (machine / name).chmod(0o755)


def run_ci(machine: Path) -> tuple[int, str]:
    """Exit code and everything printed."""
    ended = subprocess.run(
        ["bash", str(ROOT / ".ci" / "run")],
        env={"PATH": str(machine), "CI": "true"},
        cwd=machine,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return ended.returncode, ended.stdout


def test_it_runs_the_command_of_the_readme_and_allows_no_skip(machine: Path) -> None:
    told = block_run_by(__file__).text.partition("#")[0].split()
    assert told[0] == "python3"
    assert run_ci(machine) == (0, f"1 {' '.join(told[1:])}\n")
    assert not (machine / "apt.log").exists()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_what_is_missing_is_installed_in_one_go(machine: Path) -> None:
    command(machine, "python3", PYTHON.format(old=0, bare=1))
    for program in ("java", "redis-server", "chromium", "node"):
        (machine / program).unlink()
    assert run_ci(machine)[0] == 0
    update, install = (machine / "apt.log").read_text().splitlines()
    assert update == "update -qq"
    assert install.split()[-6:] == [
        *("python3", "python3-venv", "default-jre-headless"),
        *("redis-server", "chromium", "nodejs"),
    ]


def test_without_a_package_manager_it_says_what_is_missing(machine: Path) -> None:
    (machine / "redis-server").unlink()
    (machine / "apt-get").unlink()
    code, said = run_ci(machine)
    assert (code, "Missing: redis-server, and there is no apt-get here" in said) == (78, True)


def test_its_exit_code_is_that_of_the_tests(machine: Path) -> None:
    command(machine, "python3", '[ "$1" = -c ] || exit 7')
    assert run_ci(machine)[0] == 7


def test_an_old_python_is_refused_in_a_sentence(machine: Path) -> None:
    command(machine, "python3", PYTHON.format(old=1, bare=0))
    code, said = run_ci(machine)
    assert (code, "Tidegate needs Python 3.11 or newer" in said) == (78, True)
