"""`serve --topics` makes what its folder says; `--dry-run` only says what that would be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Ended, run, serving
from tests.support.rules import rule
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.slow

FILE = """
[topics."px.us"]
key = ["/symbol"]
description = "%s"

[topics."px.us.slow"]
source = {topic = "px.us", interval = "1s"}
"""


def dry(topics: Path, store: Path | str) -> Ended:
    return run("serve", "--topics", str(topics), "--data", str(store), "--dry-run")


def declare(topics: Path, description: str = "") -> None:
    topics.mkdir(exist_ok=True)
    (topics / "px.toml").write_text(FILE % description, "utf-8")


@rule("topic-12")
def test_a_folder_is_tried_applied_tried_again_changed_and_applied_again(tmp_path: Path) -> None:
    topics, store = tmp_path / "topics", tmp_path / "store"
    serve = ("--topics", str(topics), "--data", str(store))
    declare(topics)
    tried = dry(topics, store)
    assert (tried.code, tried.out) == (0, "create px.us\ncreate px.us.slow\n")
    assert tried.err == "2 to create, 0 to change, 0 to leave; nothing was done.\n"
    assert not store.exists(), "to look for a store makes none"
    with serving(*serve) as address, Gateway(address) as gateway:
        assert [topic["topic"] for topic in gateway.topics()] == ["px.us", "px.us.slow"]
        gateway.put_topic("made.by.hand", {})
        gateway.publish("px.us", [b'{"symbol":"IBM"}'])
        before = gateway.administration.topic("px.us")
    assert dry(topics, store).out == "leave px.us\nleave px.us.slow\n"
    declare(topics, "new")
    assert dry(topics, store).out == "change px.us: description\nleave px.us.slow\n"
    with serving(*serve) as address, Gateway(address) as gateway:
        names = [topic["topic"] for topic in gateway.topics()]
        assert names == ["made.by.hand", "px.us", "px.us.slow"]
        after = gateway.administration.topic("px.us")
        assert after.document["description"] == "new"
        assert after.document["epoch"] == before.document["epoch"]
        assert list(gateway.sow("px.us")) == [b'{"symbol":"IBM"}']
    (topics / "px.toml").write_text('[topics."px.us"]\nkey = ["/other"]', "utf-8")
    for refused in (dry(topics, store), run("serve", *serve, "--port", "0")):
        assert (refused.code, refused.out, refused.err.count("\n")) == (78, "", 1)
        assert "px.toml: topic px.us, field key: " in refused.err


@rule("topic-12")
def test_one_wrong_field_and_nothing_is_applied(tmp_path: Path) -> None:
    topics, store = tmp_path / "topics", tmp_path / "store"
    declare(topics)
    (topics / "zz.toml").write_text("[topics.zz]\npriority = 'highest'", "utf-8")
    serve = ("--topics", str(topics), "--data", str(store))
    for refused in (dry(topics, store), run("serve", *serve, "--port", "0")):
        assert (refused.code, refused.out) == (78, "")
        assert refused.err.startswith("tidegate: zz.toml: topic zz, field priority: ")
        assert refused.err.count("\n") == 1
    (topics / "zz.toml").unlink()
    assert dry(topics, store).out == "create px.us\ncreate px.us.slow\n"


def test_what_cannot_be_tried(tmp_path: Path) -> None:
    nowhere = run("serve", "--dry-run", cwd=str(tmp_path))
    assert (nowhere.code, nowhere.err) == (2, "tidegate: --dry-run goes with --topics\n")
    missing = dry(tmp_path / "none", ":memory:")
    assert (missing.code, missing.err.count("\n")) == (78, 1)
    assert "cannot be read" in missing.err
