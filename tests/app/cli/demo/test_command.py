"""The demo's arguments, and the port it takes when its own is taken."""

from __future__ import annotations

import socket

import pytest

from tests.support.commands import address_of, run, start
from tests.support.deadlines import HANGS_S
from tidegate.app.cli.demo.command import USUAL_PORT
from tidegate.app.cli.main import main


@pytest.mark.parametrize(
    "arguments", [("--for", "30"), ("--for", "soon"), ("--port", "-1"), ("x",)]
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert main(["demo", *arguments]) == 2
    assert capsys.readouterr().err.startswith("tidegate: ")


@pytest.mark.system
def test_a_port_that_was_asked_for_and_is_taken_is_78() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run("demo", "--no-spark", "--port", str(taken.getsockname()[1]))
    assert ended.code == 78
    assert "already in use" in ended.err


@pytest.mark.system
def test_the_usual_port_is_given_up_for_another() -> None:
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", USUAL_PORT))
            taken.listen()
        except OSError:
            pass  # someone else has it, which is just as good
        process = start("demo", "--no-spark", "--for", "1s")
        assert not address_of(process).endswith(f":{USUAL_PORT}")
        _, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 0
    assert "Taking another port." in err
