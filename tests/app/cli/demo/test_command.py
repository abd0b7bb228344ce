"""The demo's arguments, and what it cannot start without."""

from __future__ import annotations

import socket

import pytest

from tests.support.commands import call
from tidegate.app.cli.main import main


@pytest.mark.parametrize(
    "arguments", [("--for", "30"), ("--for", "soon"), ("--port", "-1"), ("x",)]
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert main(["demo", *arguments]) == 2
    assert capsys.readouterr().err.startswith("tidegate: ")


def test_a_port_that_was_asked_for_and_is_taken_is_78() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = call("demo", "--no-spark", "--port", str(taken.getsockname()[1]))
    assert ended.code == 78
    assert "already in use" in ended.err


def test_without_java_it_says_what_to_do() -> None:
    ended = call("demo", JAVA_HOME="/none")
    assert (ended.code, ended.out) == (78, "")
    assert "--no-spark" in ended.err
    assert ended.err.count("\n") == 1
