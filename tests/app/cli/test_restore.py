"""`tidegate restore`: one line either way."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.buses import BusServer
from tests.support.commands import run, serving
from tests.support.rules import rule
from tidegate.app.stores.schema import APPLICATION_ID

pytestmark = pytest.mark.slow


def test_a_backup_of_a_running_gateway_is_restored(tmp_path: Path) -> None:
    folder, backup = tmp_path / "first", tmp_path / "backup.db"
    with serving("--data", str(folder)) as address:
        assert run("topics", "create", "t", "--key", "/k", "--gateway", address).code == 0
        assert run("publish", "t", "--gateway", address, stdin=b'{"k":1}\n').code == 0
        with closing(sqlite3.connect(folder / "tidegate.db")) as found:
            found.execute("VACUUM INTO ?", (str(backup),))
        refused = run("restore", str(backup), "--data", str(folder), "--replace")
        assert refused.code == 1
        assert "in use" in refused.err
    ended = run("restore", str(backup), "--data", str(tmp_path / "second"))
    assert (ended.code, ended.err) == (0, "")
    assert "restored" in ended.out
    with serving("--data", str(tmp_path / "second")) as address:
        assert run("sow", "t", "--gateway", address).out == '{"k":1}\n'


def test_what_cannot_be_restored_is_one_line(tmp_path: Path) -> None:
    text, backup = tmp_path / "text.db", tmp_path / "backup.db"
    text.write_text("no database")
    with closing(sqlite3.connect(backup)) as made:
        made.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        made.execute("CREATE TABLE topics (name TEXT)")
    for code, source, folder in (
        (2, tmp_path / "none.db", tmp_path),
        (2, tmp_path / "nowhere" / "none.db", tmp_path),
        (2, tmp_path, tmp_path),
        (2, backup, ":memory:"),
        (1, text, tmp_path),
        (78, backup, text / "inside"),
    ):
        ended = run("restore", str(source), "--data", str(folder))
        assert (ended.code, len(ended.err.splitlines())) == (code, 1), ended.err


@rule("cluster-5")
@pytest.mark.redis
def test_a_redis_that_was_put_back_is_said_so(redis_bus: BusServer) -> None:
    ended = run("restore", "--redis", redis_bus.url)
    assert (ended.code, ended.err) == (0, "")
    assert "another epoch" in ended.out
    for code, words in (
        (1, ("--redis", "unix:///nowhere/at/all.sock")),
        (78, ("--redis", "nowhere")),
        (2, ()),
        (2, ("backup.db", "--redis", redis_bus.url)),
    ):
        ended = run("restore", *words)
        assert (ended.code, len(ended.err.splitlines())) == (code, 1), ended.err
