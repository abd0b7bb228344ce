"""Topics and sessions from the command line: listed, shown, changed, ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from tests.support.commands import Ended, call, parsed
from tidegate.app.cli.administration import SESSION_COLUMNS, TOPIC_COLUMNS, definition_of
from tidegate.app.cli.terminal import UsageInvalid
from tidegate.clients.gateway import Gateway


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
    ("given", "key"),
    [
        (("--key", "/account", "--key", "/orderId"), ["/account", "/orderId"]),
        (("--key", "/account,/orderId", "--key", "/leg"), ["/account", "/orderId", "/leg"]),
        (("--key", ""), []),
    ],
)
def test_a_key_of_several_fields(given: tuple[str, ...], key: list[str]) -> None:
    assert definition(*given) == {"key": key}


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
    with pytest.raises(click.BadParameter, match="as `topics show` prints it"):
        parsed("topics", "delete", "t", "--if-match", text)


def topics(gateway: Gateway, *arguments: str) -> Ended:
    return call("topics", *arguments, "--gateway", gateway.base_url)


def test_the_life_of_a_topic(gateway: Gateway) -> None:
    made = topics(gateway, "create", "a.b", "--key", "/id")
    tag = gateway.administration.topic("a.b").etag
    assert made.out == f"Created topic a.b, ETag {tag}\n"
    assert topics(gateway, "create", "a.b", "--key", "/id").out.startswith("Replaced topic a.b")
    assert topics(gateway, "create", "c").code == 0
    shown = json.loads(topics(gateway, "show", "a.b").out)
    assert (shown["key"], shown["etag"]) == (["/id"], tag)
    listed = [json.loads(line)["topic"] for line in topics(gateway, "list").out.splitlines()]
    assert listed == ["a.b", "c"]
    assert len(topics(gateway, "list", "--prefix", "a.").out.splitlines()) == 1
    assert topics(gateway, "delete", "c").out == "Deleted topic c\n"
    again = topics(gateway, "delete", "c")
    assert again.code == 1
    assert "[topic-unknown]" in again.err


def test_an_update_changes_what_it_names(gateway: Gateway, tmp_path: Path) -> None:
    gateway.put_topic("t", {"key": ["/id"], "description": "d", "history": {"messages": 5}})
    stale = gateway.administration.topic("t").etag
    file = tmp_path / "change.toml"
    file.write_text('priority = "high"\nhistory = {age = "1h"}')
    given = ("update", "t", "--from", str(file), "--set", "description=null")
    updated = topics(gateway, *given, "--if-match", stale.strip('"'))
    found = gateway.administration.topic("t")
    assert updated.out == f"Updated topic t, ETag {found.etag}\n"
    assert found.document["key"] == ["/id"]
    assert found.document["history"] == {"messages": 5, "age": "1h"}
    assert (found.document["priority"], found.document["description"]) == ("high", "")
    refused = topics(gateway, *given, "--if-match", stale)
    assert (refused.code, "[precondition-failed, topic " in refused.err) == (1, True)
    for verb in (("create", "t", "--new"), ("delete", "t", "--if-match", stale)):
        assert topics(gateway, *verb).code == 1
    assert gateway.administration.topic("t").etag == found.etag


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "-", "--key", "/id"), "topic-invalid"),
        (("create", "t", "--key", "id"), "key-invalid"),
        (("create", "t", "--type", "text", "--key", "/id"), "topic-invalid"),
        (("create", "t", "--type", "series", "--conflation", "always"), "policy-invalid"),
        (("create", "t", "--set", "zzq=1"), "topic-invalid"),
        (("update", "none", "--set", "priority=high"), "topic-unknown"),
        (("show", "none"), "topic-unknown"),
    ],
)
def test_what_the_gateway_refuses(gateway: Gateway, arguments: tuple[str, ...], code: str) -> None:
    ended = topics(gateway, *arguments)
    assert ended.code == 1
    assert f"[{code}" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["create", "update"])
def test_an_unknown_field_is_named(gateway: Gateway, verb: str) -> None:
    gateway.put_topic("u", {})
    ended = topics(gateway, verb, "u", "--set", "prioritty=high")
    assert ended.code == 1
    assert "[topic-invalid, topic u, field /prioritty]: Unknown field; known: key," in ended.err


@pytest.mark.parametrize(
    "arguments", [("update", "t"), ("update",), ("create", "t", "--set", "x"), ("make", "t")]
)
def test_what_makes_no_sense_of_a_topic(gateway: Gateway, arguments: tuple[str, ...]) -> None:
    ended = topics(gateway, *arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_a_topic_is_a_row_of_the_table(gateway: Gateway) -> None:
    gateway.put_topic("px", {"key": ["/id"]})
    gateway.put_topic("slow", {"source": {"topic": "px", "interval": "1s"}})
    gateway.publish("px", [b'{"id":1}'])
    rows = [[column(topic) for column in TOPIC_COLUMNS.values()] for topic in gateway.topics()]
    assert rows[0][:4] == ["px", ["/id"], 1, 1]
    assert rows[1][-2:] == ["px every 1s", ""]
    unusable = {"topic": "x", "state": "unusable", "reason": "No such merger.", "epoch": "e1"}
    row = [column(unusable) for column in TOPIC_COLUMNS.values()]
    assert (row[0], row[-1]) == ("x", "unusable: No such merger.")
    for source, shown in (({"topic": "px"}, "px every ?"), ("px", "")):
        assert TOPIC_COLUMNS["source"]({**unusable, "source": source}) == shown
    gateway.delete_topic("slow")  # first, as it is filled from the other


def sessions(gateway: Gateway, *arguments: str) -> Ended:
    return call("sessions", *arguments, "--gateway", gateway.base_url)


def test_the_life_of_a_session(gateway: Gateway) -> None:
    gateway.put_topic("px", {"key": ["/k"]})
    session = gateway.open_session()
    session.subscribe("px", options="conflation=1s")
    listed = json.loads(sessions(gateway, "list").out)
    assert (listed["session"], listed["subscriptions"]) == (session.id, 1)
    off = sessions(gateway, "conflate", session.id, "off")
    assert off.out == f"Session {session.id} is not conflated\n"
    shown = json.loads(sessions(gateway, "show", session.id).out)
    assert (shown["conflated"], shown["subscriptions"][0]["topic"]) == (False, "px")
    on = sessions(gateway, "conflate", session.id, "on")
    assert on.out == f"Session {session.id} is conflated\n"
    assert session.show()["conflated"] is True
    assert sessions(gateway, "close", session.id).out == f"Closed session {session.id}\n"
    assert (session.show()["state"], session.show()["reason"]) == ("ended", "CLOSED_BY_ADMIN")
    assert sessions(gateway, "list").out == ""
    ended = sessions(gateway, "conflate", session.id, "off")
    assert (ended.code, "[session-unknown, session " in ended.err) == (1, True)


@pytest.mark.parametrize("verb", [("show",), ("close",), ("conflate", "on")])
def test_an_unknown_session_is_refused(gateway: Gateway, verb: tuple[str, ...]) -> None:
    ended = sessions(gateway, verb[0], "nobody", *verb[1:])
    assert (ended.code, "[session-unknown, session " in ended.err) == (1, True)
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("show",), ("conflate", "s1"), ("conflate", "s1", "x")])
def test_what_makes_no_sense_of_a_session(gateway: Gateway, arguments: tuple[str, ...]) -> None:
    assert sessions(gateway, *arguments).code == 2


def test_a_session_is_a_row_of_the_table(gateway: Gateway) -> None:
    session = gateway.open_session()
    (shown,) = gateway.administration.sessions()
    row = {name: column(shown) for name, column in SESSION_COLUMNS.items()}
    assert (row["session"], row["state"], row["queued"]) == (session.id, "away", 0)
    assert str(row["opened"]).endswith("Z")
    gateway.administration.close_session(session.id)
