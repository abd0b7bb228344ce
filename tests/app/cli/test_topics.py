"""Topics are listed, shown, created and deleted; wishes become one definition."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from app.cli.errors import UsageInvalid
from app.cli.topics import definition_of
from clients.gateway import Gateway
from tests.support.commands import Ended, run


def wishes(**given: object) -> argparse.Namespace:
    names = ("key", "type", "conflation", "history", "description", "definition")
    return argparse.Namespace(**{**dict.fromkeys(names), **given})


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text('{"key": ["/a"], "description": "from the file"}')
    given = wishes(definition=str(file), key="/b, /c", history=5, conflation="off")
    assert definition_of(given) == {
        "key": ["/b", "/c"],
        "description": "from the file",
        "history": {"messages": 5},
        "conflation": "off",
    }
    assert definition_of(wishes()) == {}


@pytest.mark.parametrize("content", [None, "[]", "{", "\x00"])
def test_a_file_that_is_no_definition(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "t.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageInvalid):
        definition_of(wishes(definition=str(file)))


@pytest.mark.slow
def test_the_life_of_a_topic(gateway: Gateway) -> None:
    def topics(*arguments: str) -> Ended:
        return run("topics", *arguments, "--gateway", gateway.base_url)

    assert topics("create", "a.b", "--key", "/id").out == "Created topic a.b\n"
    assert topics("create", "a.b", "--key", "/id").out == "Replaced topic a.b\n"
    assert topics("create", "c").code == 0
    shown = topics("show", "a.b")
    assert json.loads(shown.out)["key"] == ["/id"]
    listed = [json.loads(line)["topic"] for line in topics("list").out.splitlines()]
    assert listed == ["a.b", "c"]
    assert len(topics("list", "--prefix", "a.").out.splitlines()) == 1
    assert topics("delete", "c").out == "Deleted topic c\n"
    again = topics("delete", "c")
    assert again.code == 1
    assert "[topic-unknown]" in again.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "-", "--key", "/id"), "topic-invalid"),
        (("create", "t", "--key", "id"), "key-invalid"),
        (("create", "t", "--type", "text", "--key", "/id"), "topic-invalid"),
        (("create", "t", "--type", "series", "--conflation", "always"), "policy-invalid"),
    ],
)
def test_what_the_gateway_refuses(gateway: Gateway, arguments: tuple[str, ...], code: str) -> None:
    ended = run("topics", *arguments, "--gateway", gateway.base_url)
    assert ended.code == 1
    assert f"[{code}" in ended.err


def test_update_is_not_there_yet() -> None:
    ended = run("topics", "update", "t", "--key", "/a")
    assert (ended.code, "not available yet" in ended.err) == (2, True)
