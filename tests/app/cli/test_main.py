"""An interrupt ends the command with 130 and without a word, however early it comes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

import pytest

from tests.support.commands import environment, start
from tests.support.deadlines import HANGS_S
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
