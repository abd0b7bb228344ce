"""Every end of a command has its exit code and, if it failed, one line that says why."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path

import click
import pytest

import tidegate.app.cli.command
import tidegate.app.cli.reading
from tests.support.commands import Ended, environment, parsed, start
from tests.support.deadlines import HANGS_S
from tidegate.app.cli.bench import measure
from tidegate.app.cli.command import MODULES
from tidegate.app.cli.main import main
from tidegate.clients.gateway import Gateway

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
        ((), "Missing command"),
        (("fly",), "No such command 'fly'"),
        (("publish",), "Missing argument 'TOPIC'"),
        (("subscibe",), "Did you mean 'subscribe'?"),
        (("--versoin",), "Did you mean '--version'?"),
        (("sow", "t", "--filtr", "x"), "Did you mean '--filter'?"),
        (("pipeline", "replay2"), "Did you mean 'replay'?"),
        (("subscribe", "t", "--count", "0"), "x>=1"),
        (("subscribe", "t", "--for", "10"), "10"),
        (("subscribe", "t", "--table", "--format", "value"), "either --table or --format"),
        (("subscribe", "t", "--table", "--sort", "/a DOWN"), "'/a DOWN' is not an order"),
        (("subscribe", "t", "--format", "xml"), "xml"),
        (("subscribe", "t", "--opt", "x"), "No such option"),
        (("topics",), "Missing command"),
        (("topics", "list", "--gateway", "nowhere"), "such as http://127.0.0.1:8080"),
        (("serve", "--port", "70000"), "0<=x<=65535"),
        (("serve", "--workers", "2"), "needs --redis, where the workers share"),
        (("serve", "--dry-run"), "--dry-run needs --topics"),
        (("top", "--interval", "5"), "such as 500ms, not '5'"),
    ],
)
def test_wrong_usage_is_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    result = ended(capsys, *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in one_line(result.err)


def test_a_setting_of_several_workers_without_redis_is_78(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEGATE_WORKERS", "2")
    result = ended(capsys, "serve")
    assert (result.code, result.out) == (78, "")
    assert "needs redis, where the workers share" in one_line(result.err)
    assert not list(tmp_path.iterdir())  # no store was made


@pytest.mark.parametrize(
    "arguments",
    [("topics", "list"), ("sow", "t"), ("subscribe", "t"), ("topics", "delete", "t")],
)
def test_an_unreachable_gateway_is_3(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    result = ended(capsys, *arguments, *NOBODY)
    assert result.code == 3
    assert "Cannot reach the gateway at http://127.0.0.1:1" in one_line(result.err)


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
    assert result.out.startswith("Usage: tidegate")
    assert max(map(len, result.out.splitlines())) <= 100


def test_a_fault_of_ours_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**arguments: object) -> int:
        raise ZeroDivisionError("of\nall things")

    monkeypatch.setattr(tidegate.app.cli.reading.sow, "callback", broken)
    result = ended(capsys, "sow", "t")
    assert (result.code, one_line(result.err)) == (1, "tidegate: ZeroDivisionError: of all things")


@pytest.fixture
def busy(gateway: Gateway) -> Gateway:
    """A gateway with more in one topic than a pipe holds."""
    gateway.put_topic("many", {"key": ["/n"]})
    gateway.publish("many", [b'{"n":%d,"text":"%s"}' % (n, b"x" * 200) for n in range(5000)])
    return gateway


@pytest.mark.system
def test_a_reader_that_has_had_enough_is_no_failure(busy: Gateway) -> None:
    process = start("sow", "many", "--gateway", busy.base_url)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(HANGS_S) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.system
def test_help_and_version_wait_for_nothing_heavy() -> None:
    code = "import sys, tidegate.app.cli.main as it; it.main(['version']); print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, env=environment()
    )
    modules = ended.stdout.splitlines()[-1].split()
    assert "tidegate.app" in modules
    loaded = {name.partition(".")[0] for name in modules}
    heavy = {"fastapi", "httpx2", "pydantic", "pyspark", "redis", "rich", "starlette", "uvicorn"}
    assert loaded & heavy == set()


def all_commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below a group, groups included, with the words that name it."""
    context = click.Context(group)
    context.obj = []  # the words that `tidegate pipeline` would hand over
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield (*path, name), found
        if isinstance(found, click.Group):
            yield from all_commands(found, (*path, name))


COMMANDS = list(all_commands(tidegate.app.cli.command.tidegate))


@pytest.mark.parametrize(("path", "found"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_the_help_of_a_command_has_examples_that_can_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...], found: click.Command
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").touch()
    shown = found.get_help(click.Context(found, info_name=" ".join(("tidegate", *path))))
    title, *lines = shown[shown.index("Example") :].splitlines()
    assert title == ("Example:" if len(lines) == 1 else "Examples:")
    for line in lines:
        of_line = shlex.split(line)
        after = of_line[of_line.index("tidegate") + 1 :]
        words = list(takewhile(lambda word: word not in {"|", ">"}, after))
        assert tuple(words[: len(path)]) == path
        assert parsed(*words).command.callback


def test_the_help_of_a_measurement_has_an_example_too() -> None:
    shown = measure.get_help(click.Context(measure))
    example = shlex.split(shown.splitlines()[-1])
    assert example[:2] == ["tidegate", "bench"]
    assert measure.make_context("tidegate bench", example[2:]).params["rate"] == 5_000


def test_every_verb_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ended(capsys, "--help").out
    for verb in MODULES:
        assert re.search(rf"^  {verb} +\w", shown, re.MULTILINE), verb


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, "--version") == Ended(0, f"tidegate {version('tidegate')}\n", "")
