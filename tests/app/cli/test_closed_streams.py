"""Standard streams that are closed, or on a full disk: services run, commands say what is wrong."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.commands import command, environment
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port

SHELL = ("sh", "-c")


def run_redirected(words: list[str], redirections: str) -> tuple[int, str, str]:
    """Run a command with redirections of the shell; return its status, output and errors."""
    done = subprocess.run(
        [*SHELL, f'exec "$@" {redirections}', "sh", *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.system
@pytest.mark.parametrize(
    "redirections",
    [
        "<&- >&- 2>&-",
        pytest.param(">&-", marks=pytest.mark.nightly),
        pytest.param("> /dev/full", marks=pytest.mark.nightly),
        pytest.param("> /dev/full 2> /dev/full", marks=pytest.mark.nightly),
    ],
)
def test_a_line_of_output_never_stops_the_service(tmp_path: Path, redirections: str) -> None:
    port = lasting_port()
    words = command("serve", "--port", str(port), "--data", str(tmp_path))
    process = subprocess.Popen(
        [*SHELL, f'exec "$@" {redirections}', "sh", *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        ends_at = time.monotonic() + HANGS_S
        while not _is_alive(port):
            assert process.poll() is None
            assert time.monotonic() < ends_at
            time.sleep(0.05)
        # Descriptors 0 to 2 are in use: a store file with such a number would receive log lines.
        held = [Path(f"/proc/{process.pid}/fd/{number}").readlink() for number in range(3)]
        assert not any(tmp_path in each.parents or "socket" in each.name for each in held)
        process.terminate()
        assert process.wait(HANGS_S) == 0
    finally:
        process.kill()
        process.communicate(timeout=HANGS_S)


def _is_alive(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=HANGS_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.system
@pytest.mark.parametrize(
    ("words", "redirections", "code", "said"),
    [
        (("publish", "px"), "<&-", 2, "tidegate: standard input is closed: name a file"),
        (("topics", "create", "px", "--from", "-"), "<&-", 2, "tidegate: standard input is closed"),
        (("version",), "> /dev/full", 1, "tidegate: cannot write the output: No space left"),
        (("version",), ">&-", 0, ""),
        (("nothing",), "2>&-", 2, ""),
    ],
)
def test_a_command_says_what_is_wrong(
    words: tuple[str, ...], redirections: str, code: int, said: str
) -> None:
    status, output, errors = run_redirected(command(*words), redirections)
    assert (status, output) == (code, "")
    assert errors.startswith(said)
    assert errors.count("\n") == bool(said)
