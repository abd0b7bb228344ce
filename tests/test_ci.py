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

TOOLS = ("bash", "dirname", "sed", "head", "id")
PYTHON = 'case "$*" in *version_info*) exit {old};; *ensurepip*) exit {bare};; esac\n'
PYTHON += 'echo "$TIDEGATE_REQUIRE_ALL" "$@"'


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A PATH with a shell, a Python that says how it was called, and a package manager's log."""
    for tool in TOOLS:
        where = shutil.which(tool)
        assert where is not None
        (tmp_path / tool).symlink_to(where)
    command(tmp_path, "python3", PYTHON.format(old=0, bare=0))
    command(tmp_path, "java", "echo 'openjdk version \"17.0.15\"' >&2")
    command(tmp_path, "redis-server", "")
    command(tmp_path, "strace", "")
    command(tmp_path, "curl", "")
    command(tmp_path, "nginx", "")
    command(tmp_path, "caddy", "")
    command(tmp_path, "mosquitto_sub", "")
    command(tmp_path, "node", "")
    command(tmp_path, "npm", "")
    command(tmp_path, "go", "")
    command(tmp_path, "tsc", "")
    command(tmp_path, "cc", "")
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


def installed(machine: Path) -> list[str]:
    """What was asked of the package manager; Chromium's place is fixed, so it is left out."""
    log = machine / "apt.log"
    return log.read_text().replace(" chromium", "").splitlines() if log.exists() else []


def test_it_is_a_command() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_it_tests_lower_bounds_and_everything_and_allows_no_skip(machine: Path) -> None:
    code, said = run_ci(machine)
    # The system's Chromium has a fixed path, so its absence may be reported before these lines.
    wanted = ["1 dev.py lowest", "1 dev.py audit", "1 dev.py test"]
    assert (code, said.splitlines()[-3:]) == (0, wanted)


def test_it_ends_with_the_command_of_the_readme(machine: Path) -> None:
    """Which every such check so runs; to run it from here would never end."""
    told = block_run_by(__file__).text.partition("#")[0].split()
    assert told[0] == "python3"
    assert run_ci(machine)[1].splitlines()[-1].split()[1:] == told[1:]


def test_its_exit_code_is_that_of_the_tests(machine: Path) -> None:
    command(machine, "python3", '[ "$1" = -c ] || exit 7')
    assert run_ci(machine)[0] == 7


def test_a_java_too_old_for_spark_is_missing(machine: Path) -> None:
    command(machine, "java", "echo 'openjdk version \"1.8.0_292\"' >&2")
    assert run_ci(machine)[0] == 0
    assert installed(machine)[-1].endswith(" default-jre-headless")


def test_without_a_package_manager_it_names_what_is_missing(machine: Path) -> None:
    (machine / "redis-server").unlink()
    (machine / "apt-get").unlink()
    code, said = run_ci(machine)
    assert code == 78
    assert "redis-server" in said.splitlines()[-1]


def test_an_old_python_is_named(machine: Path) -> None:
    command(machine, "python3", PYTHON.format(old=1, bare=0))
    code, said = run_ci(machine)
    assert code == 78
    assert "3.11 or newer" in said.splitlines()[-1]
