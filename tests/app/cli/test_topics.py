"""Topics are listed, shown, created, updated and deleted from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import Ended, run
from tidegate.app.cli.administration import TOPIC_COLUMNS as COLUMNS
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.slow


def topics(gateway: Gateway, *arguments: str) -> Ended:
    return run("topics", *arguments, "--gateway", gateway.base_url)


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
    assert (refused.code, "[precondition-failed]" in refused.err) == (1, True)
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


@pytest.mark.parametrize(
    "arguments", [("update", "t"), ("update",), ("create", "t", "--set", "x"), ("make", "t")]
)
def test_what_makes_no_sense(gateway: Gateway, arguments: tuple[str, ...]) -> None:
    ended = topics(gateway, *arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_a_row_of_the_table(gateway: Gateway) -> None:
    gateway.put_topic("px", {"key": ["/id"]})
    gateway.put_topic("slow", {"source": {"topic": "px", "interval": "1s"}})
    gateway.publish("px", [b'{"id":1}'])
    rows = [[column(topic) for column in COLUMNS.values()] for topic in gateway.topics()]
    assert rows[0][:4] == ["px", ["/id"], 1, 1]
    assert rows[1][-2:] == ["px every 1s", ""]
    unusable = {"topic": "x", "state": "unusable", "reason": "No such merger.", "epoch": "e1"}
    row = [column(unusable) for column in COLUMNS.values()]
    assert (row[0], row[-1]) == ("x", "unusable: No such merger.")
    gateway.delete_topic("slow")  # first, as it is filled from the other
