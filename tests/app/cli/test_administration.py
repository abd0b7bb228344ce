"""Definitions from files and flags; flags win, and `--set` over all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from tests.support.commands import parsed
from tidegate.app.cli.administration import definition_of
from tidegate.app.cli.errors import UsageInvalid


def definition(*given: str) -> dict[str, Any]:
    fields = parsed("topics", "create", "px.us", *given).params
    return definition_of(
        **{
            name: value
            for name, value in fields.items()
            if name not in ("new", "if_match", "gateway")
        }
    )


def test_flags_win_over_the_file_and_set_over_all(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text('{"key": ["/a"], "description": "from the file", "priority": "low"}')
    given = ("--from", str(file), "--key", "/b, /c", "--history", "5", "--conflation", "off")
    assert definition(*given, "--set", "priority=high", "--set", "conflation=always") == {
        "key": ["/b", "/c"],
        "description": "from the file",
        "priority": "high",
        "history": {"messages": 5},
        "conflation": "always",
    }
    assert definition() == {}


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("priority=high", {"priority": "high"}),
        ("expiration=null", {"expiration": None}),
        ('history={"age":"1h"}', {"history": {"age": "1h"}}),
        ("options=conflation=1s", {"options": "conflation=1s"}),
        ('description="12"', {"description": "12"}),
        ("description=NaN", {"description": "NaN"}),
        ("options=", {"options": ""}),
    ],
)
def test_a_value_is_json_or_else_a_text(text: str, pair: dict[str, Any]) -> None:
    assert definition("--set", text) == pair


@pytest.mark.parametrize("text", ["priority", "=high", ""])
def test_what_assigns_nothing_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="FIELD=VALUE"):
        definition("--set", text)


def test_a_toml_file_is_a_definition_or_has_the_topics_table(tmp_path: Path) -> None:
    whole, many = tmp_path / "one.toml", tmp_path / "many.TOML"
    whole.write_text('key = ["/k"]\nhistory = {age = "1h"}')
    many.write_text('[topics.other]\n[topics."px.us"]\nkey = ["/k"]')
    assert definition("--from", str(whole)) == {"key": ["/k"], "history": {"age": "1h"}}
    assert definition("--from", str(many)) == {"key": ["/k"]}
    many.write_text("[topics.other]")
    with pytest.raises(UsageInvalid, match=r"has no topic px\.us"):
        definition("--from", str(many))


@pytest.mark.parametrize("name", ["t.json", "t.toml"])
@pytest.mark.parametrize("content", [None, b"[]", b"{", b"\x00", b"\xff", b"topics = 1"])
def test_a_file_that_is_no_definition(tmp_path: Path, name: str, content: bytes | None) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    if (name, content) == ("t.toml", b"[]"):
        file.write_bytes(b"[")
    with pytest.raises(UsageInvalid):
        definition("--from", str(file))


@pytest.mark.parametrize(
    ("text", "tag"),
    [('"a1"', '"a1"'), ("a1", '"a1"'), ("*", "*"), ('W/"a1"', 'W/"a1"'), ('"a","b"', '"a","b"')],
)
def test_a_tag_gets_its_quotes_back(text: str, tag: str) -> None:
    assert parsed("topics", "delete", "t", "--if-match", text).params["if_match"] == tag


@pytest.mark.parametrize("text", ["", "a b", "ä", "a\n"])
def test_what_is_no_tag(text: str) -> None:
    with pytest.raises(click.BadParameter, match="such as topics show gives"):
        parsed("topics", "delete", "t", "--if-match", text)
