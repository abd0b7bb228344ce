"""Signals end the command without output, however early: 130, or 143 as process 1."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import psutil
import pytest

from tests.support.commands import command, environment, start
from tests.support.deadlines import HANGS_S
from tests.support.outside import require
from tidegate.app.cli.main import main
from tidegate.clients.gateway import Gateway

LOADED = (
    "import sys, tidegate.app.cli.main;"
    "print(*sorted(name for name in sys.modules if name.startswith('tidegate')))"
)


class Interrupted:
    """A finder of modules in which Ctrl-C is pressed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object) -> ModuleSpec | None:
        if name == "tidegate.app.cli.command":
            raise KeyboardInterrupt
        return None


def test_an_interrupt_while_the_command_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tidegate.app.cli.command", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert main(["version"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.system
def test_all_of_the_command_is_loaded_where_an_interrupt_is_heeded() -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-c", LOADED], capture_output=True, text=True, env=environment()
    )
    assert ended.stdout.split() == [
        "tidegate",
        "tidegate.app",
        "tidegate.app.cli",
        "tidegate.app.cli.main",
        "tidegate.app.cli.terminal",
    ]


@pytest.mark.system
def test_an_interrupt_is_130_without_a_word(gateway: Gateway) -> None:
    gateway.put_topic("px", {"key": ["/n"]})
    gateway.publish("px", [b'{"n":1}'])
    process = start("subscribe", "px", "--gateway", gateway.base_url)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANGS_S)
    assert (process.returncode, err) == (130, "")


@pytest.mark.parametrize("pid", [1, 2])
def test_the_first_process_of_a_container_handles_sigterm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pid: int
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(os, "getpid", lambda: pid)
    try:
        assert main(["--version"]) == 0
        assert (signal.getsignal(signal.SIGTERM) is not before) == (pid == 1)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def process_1(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """`unshare`, which ends with the command's exit code, and the command as process 1."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *as_root, "--pid", "--fork", "--kill-child"]
    is_permitted = (
        shutil.which("unshare")
        and not subprocess.run([*unshare, "true"], capture_output=True).returncode
    )
    require(bool(is_permitted), "no PID namespace can be made here")
    with subprocess.Popen(
        [*unshare, *command(*arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as outer:
        try:
            give_up_at = time.monotonic() + HANGS_S
            while not (inner := psutil.Process(outer.pid).children()):
                assert time.monotonic() < give_up_at
            yield outer, inner[0]
        finally:
            outer.kill()


def handles_sigterm(process: psutil.Process) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.nightly  # a container may not permit PID namespaces
def test_sigterm_ends_process_1_while_it_waits_for_redis() -> None:
    """`docker stop` of a gateway that still starts; without a handler it would take ten seconds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        redis = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with process_1("serve", "--port", "0", "--redis", redis) as (outer, inner):
            give_up_at = time.monotonic() + HANGS_S
            while not handles_sigterm(inner):
                assert time.monotonic() < give_up_at
                time.sleep(0.01)
            inner.send_signal(signal.SIGTERM)
            out, _ = outer.communicate(timeout=HANGS_S)
    assert (outer.returncode, out) == (143, "")
