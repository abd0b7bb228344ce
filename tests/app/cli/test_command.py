"""Every ending of a command has its exit code and, if it is a bad one, its one line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import app.cli.sow
from app.cli.main import main
from clients.gateway import Gateway
from tests.support.commands import ENDS_S_MAX, Ended, command, environment, start

NOBODY = ("--gateway", "http://127.0.0.1:1")


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ended:
    code = main(arguments)
    said = capsys.readouterr()
    return Ended(code, said.out, said.err)


def one_line(text: str) -> str:
    assert text.startswith("tidegate: ")
    assert text.count("\n") == 1
    return text.strip()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "required: VERB"),
        (("fly",), "invalid choice: 'fly'"),
        (("publish",), "required: TOPIC"),
        (("subscribe", "t", "--count", "0"), "above 0"),
        (("subscribe", "t", "--for", "10"), "10"),
        (("subscribe", "t", "--table", "--format", "value"), "exclude one another"),
        (("subscribe", "t", "--format", "xml"), "xml"),
        (("subscribe", "t", "--opt", "x"), "unrecognized"),
        (("topics",), "required: VERB"),
        (("topics", "list", "--gateway", "nowhere"), "such as http://127.0.0.1:8080"),
        (("serve", "--port", "70000"), "0 to 65535"),
        (("serve", "--workers", "2"), "needs --redis"),
        (("serve", "--dry-run"), "--dry-run goes with --topics"),
        (("top",), "top is not available yet"),
    ],
)
def test_wrong_usage_is_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    result = ended(capsys, *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in one_line(result.err)


@pytest.mark.parametrize(
    "arguments",
    [("topics", "list"), ("sow", "t"), ("subscribe", "t"), ("topics", "delete", "t")],
)
def test_nobody_there_is_3(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    result = ended(capsys, *arguments, *NOBODY)
    assert result.code == 3
    assert "Cannot reach a gateway at http://127.0.0.1:1" in one_line(result.err)


@pytest.mark.slow
@pytest.mark.parametrize("verb", [("sow",), ("subscribe",), ("topics", "show")])
def test_a_refusal_is_1_with_title_and_code(
    capsys: pytest.CaptureFixture[str], address: str, verb: tuple[str, ...]
) -> None:
    result = ended(capsys, *verb, "none", "--gateway", address)
    assert result.code == 1
    assert "There is no such topic [topic-unknown]" in one_line(result.err)


@pytest.mark.parametrize("arguments", [("--help",), ("publish", "--help"), ("topics", "-h")])
def test_help_is_0(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    result = ended(capsys, *arguments)
    assert result.code == 0
    assert result.out.startswith("usage: tidegate")


def test_a_fault_of_ours_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(arguments: object) -> int:
        raise ZeroDivisionError("of\nall things")

    monkeypatch.setattr(app.cli.sow, "run", broken)
    result = ended(capsys, "sow", "t")
    assert (result.code, one_line(result.err)) == (1, "tidegate: ZeroDivisionError: of all things")


@pytest.fixture
def busy(gateway: Gateway) -> Gateway:
    """A gateway with more in one topic than a pipe holds."""
    gateway.put_topic("many", {"key": ["/n"]})
    gateway.publish("many", [b'{"n":%d,"text":"%s"}' % (n, b"x" * 200) for n in range(5000)])
    return gateway


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["sow", "subscribe"])
def test_a_reader_that_has_had_enough_is_no_failure(busy: Gateway, verb: str) -> None:
    process = start(verb, "many", "--gateway", busy.base_url)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(ENDS_S_MAX) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.slow
def test_help_and_version_wait_for_nothing_heavy() -> None:
    code = "import sys, app.cli.main as it; it.main(['version']); print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, env=environment()
    )
    loaded = {name.partition(".")[0] for name in ended.stdout.splitlines()[-1].split()}
    assert "app" in loaded
    heavy = {"fastapi", "httpx2", "pydantic", "pyspark", "redis", "rich", "starlette", "uvicorn"}
    assert loaded & heavy == set()


@pytest.mark.slow
def test_packages_of_another_project_are_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "keys").mkdir()
    (other / "keys" / "__init__.py").touch()
    path = os.pathsep.join([str(other), environment()["PYTHONPATH"]])
    ended = subprocess.run(
        command("version"),
        capture_output=True,
        text=True,
        env={**environment(), "PYTHONPATH": path},
    )
    assert ended.returncode == 78
    assert "a package keys in" in one_line(ended.stderr)
