"""The gateway as a command: start and end, a dry run, and a restored backup."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Ended, address_of, call, serving_here, start
from tests.support.deadlines import HANGS_S
from tests.support.gateways import running_gateway
from tests.support.rules import rule
from tidegate.app.cli.serve import NOTHING_KEPT
from tidegate.app.stores.schema import APPLICATION_ID
from tidegate.clients.gateway import Gateway


@pytest.mark.system
def test_it_listens_serves_and_ends() -> None:
    process = start("serve", "--port", "0")
    address = address_of(process)
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d*", address)
    with Gateway(address) as gateway:
        gateway.publish("t", [b"1"])
        end_in_stream(gateway, process, signal.SIGINT)
    _, err = process.communicate(timeout=HANGS_S)
    assert (process.returncode, NOTHING_KEPT in err) == (130, True)


def end_in_stream(gateway: Gateway, process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal while a stream is open, which ends with a farewell."""
    events = gateway.subscribe("t")
    assert next(events).name == "hello"
    process.send_signal(number)
    assert any(event.name == "goodbye" for event in events)
    events.close()


def test_an_address_that_is_taken_is_78() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = call("serve", "--port", str(port))
    assert (ended.code, ended.out) == (78, "")
    assert f"Cannot listen on 127.0.0.1 port {port}: address already in use" in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--data", "tidegate.txt"), "The store's folder tidegate.txt cannot be written"),
        (("--redis", "http://127.0.0.1"), "redis: expected redis://HOST:PORT"),
        (("--topics", "dir"), "dir: cannot be read: No such file or directory"),
        (("--archive", "none"), "archive: there is no folder none"),
        (("--host", "0.0.0.0"), "--insecure"),
        (("--config", "none.toml"), "none.toml"),
        (("--auth-audience", "desk"), "auth_audience has no effect without auth_keys"),
    ],
)
def test_what_cannot_be_had_is_78(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "tidegate.txt").touch()
    ended = call("serve", "--port", "0", *arguments, cwd=str(tmp_path))
    assert (ended.code, ended.out) == (78, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_a_redis_that_is_not_there_is_3_after_a_moment(tmp_path: Path) -> None:
    """Not 78: systemd starts the gateway again, which another start may mend."""
    began_s = time.monotonic()
    ended = call("serve", "--port", "0", "--redis", "redis://user:secret@127.0.0.1:1/0")
    assert time.monotonic() - began_s < 10, "a few seconds"
    assert (ended.code, ended.out) == (3, "")
    last = ended.err.splitlines()[-1]
    assert last == "tidegate: Redis at 127.0.0.1:1/0 does not answer: Connection refused"
    assert "secret" not in ended.err


async def test_a_damaged_page_of_the_store_is_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with running_gateway(data=str(folder)) as running:
        await running.topic()
        await running.publish(*({"k": key, "pad": "x" * 3_000} for key in range(9)))
    file = folder / "tidegate.db"
    content = bytearray(file.read_bytes())
    content[-9 * 4_096 :] = b"\xff" * (9 * 4_096)
    file.write_bytes(content)
    ended = await asyncio.to_thread(call, "serve", "--port", "0", "--data", str(folder))
    assert (ended.code, ended.out) == (78, "")
    assert "malformed" in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err


@pytest.mark.system
@pytest.mark.nightly
def test_what_was_published_is_there_after_a_kill(tmp_path: Path) -> None:
    folder = str(tmp_path / "store")
    killed = start("serve", "--port", "0", TIDEGATE_DATA=folder)
    with Gateway(address_of(killed)) as gateway:
        gateway.put_topic("t", {"key": ["/k"]})
        gateway.publish("t", [b'{"k":1,"v":1}', b'{"k":1,"v":2}'])
        killed.kill()
    killed.communicate(timeout=HANGS_S)
    process = start("serve", "--port", "0", TIDEGATE_DATA=folder)
    with Gateway(address_of(process)) as gateway:
        assert list(gateway.sow("t")) == [b'{"k":1,"v":2}']
        end_in_stream(gateway, process, signal.SIGTERM)
    _, err = process.communicate(timeout=HANGS_S)
    assert (process.returncode, NOTHING_KEPT in err) == (0, False)


def test_a_second_gateway_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with serving_here(data=folder):
        ended = call("serve", "--port", "0", "--data", folder)
    assert (ended.code, ended.out) == (78, "")
    assert "is in use by another gateway" in ended.err
    assert ended.err.count("\n") == 1


def test_a_merger_that_cannot_be_imported_is_78(tmp_path: Path) -> None:
    (tmp_path / "tidegate.toml").write_text('mergers = ["no.such.module:f"]', "utf-8")
    ended = call("serve", "--port", "0", cwd=str(tmp_path))
    assert (ended.code, ended.out) == (78, "")
    assert "no.such.module:f cannot be imported" in ended.err
    assert ended.err.count("\n") == 1


FILE = """
[topics."px.us"]
key = ["/symbol"]
description = "%s"

[topics."px.us.slow"]
source = {topic = "px.us", interval = "1s"}
"""


def dry(topics: Path, store: Path | str) -> Ended:
    return call("serve", "--topics", str(topics), "--data", str(store), "--dry-run")


def declare(topics: Path, description: str = "") -> None:
    topics.mkdir(exist_ok=True)
    (topics / "px.toml").write_text(FILE % description, "utf-8")


@rule("topic-12")
def test_a_folder_is_tried_applied_tried_again_changed_and_applied_again(tmp_path: Path) -> None:
    topics, store = tmp_path / "topics", tmp_path / "store"
    given = {"topics": str(topics), "data": str(store)}
    serve = ("--topics", str(topics), "--data", str(store))
    declare(topics)
    tried = dry(topics, store)
    assert (tried.code, tried.out) == (0, "create px.us\ncreate px.us.slow\n")
    assert tried.err == "2 to create, 0 to change, 0 to leave; nothing was changed.\n"
    assert not store.exists(), "to look for a store makes none"
    with serving_here(**given) as address, Gateway(address) as gateway:
        assert [topic["topic"] for topic in gateway.topics()] == ["px.us", "px.us.slow"]
        gateway.put_topic("made.by.hand", {})
        gateway.publish("px.us", [b'{"symbol":"IBM"}'])
        before = gateway.administration.topic("px.us")
    assert dry(topics, store).out == "leave px.us\nleave px.us.slow\n"
    declare(topics, "new")
    assert dry(topics, store).out == "change px.us: description\nleave px.us.slow\n"
    with serving_here(**given) as address, Gateway(address) as gateway:
        names = [topic["topic"] for topic in gateway.topics()]
        assert names == ["made.by.hand", "px.us", "px.us.slow"]
        after = gateway.administration.topic("px.us")
        assert after.document["description"] == "new"
        assert after.document["epoch"] == before.document["epoch"]
        assert list(gateway.sow("px.us")) == [b'{"symbol":"IBM"}']
    (topics / "px.toml").write_text('[topics."px.us"]\nkey = ["/other"]', "utf-8")
    for refused in (dry(topics, store), call("serve", *serve, "--port", "0")):
        assert (refused.code, refused.out, refused.err.count("\n")) == (78, "", 1)
        assert "px.toml: topic px.us, field key: " in refused.err


@rule("topic-12")
def test_one_wrong_field_and_nothing_is_applied(tmp_path: Path) -> None:
    topics, store = tmp_path / "topics", tmp_path / "store"
    declare(topics)
    (topics / "zz.toml").write_text("[topics.zz]\npriority = 'highest'", "utf-8")
    serve = ("--topics", str(topics), "--data", str(store))
    for refused in (dry(topics, store), call("serve", *serve, "--port", "0")):
        assert (refused.code, refused.out) == (78, "")
        assert refused.err.startswith("tidegate: zz.toml: topic zz, field priority: ")
        assert refused.err.count("\n") == 1
    (topics / "zz.toml").unlink()
    assert dry(topics, store).out == "create px.us\ncreate px.us.slow\n"


def test_what_cannot_be_tried(tmp_path: Path) -> None:
    nowhere = call("serve", "--dry-run", cwd=str(tmp_path))
    assert (nowhere.code, nowhere.err) == (2, "tidegate: --dry-run needs --topics\n")
    idle = call("serve", "--dry-run", "--topics", "none", "--auth-audience", "desk")
    assert idle.err == "tidegate: auth_audience has no effect without auth_keys\n"
    assert idle.code == 78
    missing = dry(tmp_path / "none", ":memory:")
    assert (missing.code, missing.err.count("\n")) == (78, 1)
    assert "cannot be read" in missing.err


def test_a_backup_of_a_running_gateway_is_restored(tmp_path: Path) -> None:
    folder, backup = tmp_path / "first", tmp_path / "backup.db"
    with serving_here(data=str(folder)) as address:
        assert call("topics", "create", "t", "--key", "/k", "--gateway", address).code == 0
        assert call("publish", "t", "--gateway", address, stdin=b'{"k":1}\n').code == 0
        made = call("backup", str(backup), "--data", str(folder))
        assert (made.code, made.err) == (0, "")
        assert made.out.endswith(f"topics of {folder} copied to {backup}\n")
        again = call("backup", str(backup), "--data", str(folder))
        assert (again.code, again.err.count("\n")) == (1, 1)
        refused = call("restore", str(backup), "--data", str(folder), "--replace")
        assert refused.code == 1
        assert "in use" in refused.err
    ended = call("restore", str(backup), "--data", str(tmp_path / "second"))
    assert (ended.code, ended.err) == (0, "")
    assert "restored" in ended.out
    with serving_here(data=str(tmp_path / "second")) as address:
        assert call("sow", "t", "--gateway", address).out == '{"k":1}\n'


def test_what_cannot_be_copied_is_one_line(tmp_path: Path) -> None:
    cases: list[tuple[int, tuple[str, ...], dict[str, Any]]] = [
        (1, ("--data", str(tmp_path)), {}),
        (2, ("--data", ":memory:"), {}),
        (2, (), {"TIDEGATE_REDIS": "redis://127.0.0.1:1"}),
    ]
    for code, words, variables in cases:
        ended = call("backup", str(tmp_path / "b.db"), *words, **variables)
        assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1), ended.err


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
        ended = call("restore", str(source), "--data", str(folder))
        assert (ended.code, len(ended.err.splitlines())) == (code, 1), ended.err


def test_a_check_names_everything_that_is_wrong_at_once(tmp_path: Path) -> None:
    topics = tmp_path / "topics"
    declare(topics)
    (topics / "yy.toml").write_text("[topics.yy]\nkey = 3", "utf-8")
    (topics / "zz.toml").write_text(
        "[topics.zz]\npriority = 'highest'\n[topics.z2]\nx = 1", "utf-8"
    )
    (tmp_path / "keys.json").write_text("{}", "utf-8")
    (tmp_path / "policy.toml").write_text("clam = 'groups'", "utf-8")
    (tmp_path / "tidegate.toml").write_text(
        'mergers = ["nowhere:at_all"]\narchive = "none"\nworkers = 2', "utf-8"
    )
    checked = call(
        *("serve", "--check", "--topics", "topics", "--tls-cert", "none.pem"),
        *("--auth-keys", "keys.json", "--auth-policy", "policy.toml"),
        cwd=str(tmp_path),
    )
    assert (checked.code, checked.out) == (78, "")
    named = [line.removeprefix("tidegate: ").split(": ")[0] for line in checked.err.splitlines()]
    expected = ["mergers", "yy.toml", "zz.toml", "zz.toml", "auth_keys", "auth_policy"]
    assert named == [*expected, "tls_cert", "archive", "workers"]
    assert not (tmp_path / "tidegate-data").exists()


def test_a_check_names_every_invalid_setting(tmp_path: Path) -> None:
    (tmp_path / "tidegate.toml").write_text('port = 0.5\nheartbeet = "1s"', "utf-8")
    checked = call("serve", "--check", cwd=str(tmp_path))
    assert (checked.code, checked.err.count("\n")) == (78, 2)
    assert "'port'" in checked.err
    assert "'heartbeet': no such setting; did you mean heartbeat?" in checked.err


def test_a_check_names_settings_that_do_not_fit_beside_invalid_ones(tmp_path: Path) -> None:
    topics = tmp_path / "topics"
    declare(topics)
    (topics / "yy.toml").write_text("[topics.yy]\nkey = 3", "utf-8")
    (tmp_path / "tidegate.toml").write_text(
        'shutdown_grace = 3\ntopics = "topics"\nauth_oidc_secret_file = "none"\ntls_key = "none"\n'
        'tls_client_ca = "none"\narchive = "none"\nworkers = 2',
        "utf-8",
    )
    checked = call("serve", "--check", "--host", "0.0.0.0", cwd=str(tmp_path))
    named = [re.sub("[:,]? .*", "", line[len("tidegate: ") :]) for line in checked.err.splitlines()]
    rules = ["host", "auth_oidc_secret_file", "tls_key", "tls_client_ca"]
    assert named == ["tidegate.toml", *rules, "yy.toml", "archive", "workers"], checked.err


def test_a_check_concludes_nothing_from_an_invalid_setting(tmp_path: Path) -> None:
    (tmp_path / "tidegate.toml").write_text(
        'auth_keys = 3\nauth_policy = "none"\nredis = 3\nworkers = 2', "utf-8"
    )
    checked = call("serve", "--check", "--host", "0.0.0.0", cwd=str(tmp_path))
    assert "auth_keys" in checked.err
    assert "redis" in checked.err
    assert checked.err.count("\n") == 2, checked.err


def test_a_check_starts_nothing(tmp_path: Path) -> None:
    topics = tmp_path / "topics"
    declare(topics)
    given = ("--topics", str(topics), "--redis", "redis://127.0.0.1:1/0")
    valid = call("serve", "--check", *given, cwd=str(tmp_path))
    assert (valid.code, valid.err) == (0, "")
    assert valid.out.startswith("The configuration is valid.")
    assert [path.name for path in tmp_path.iterdir()] == ["topics"]
    malformed = call("serve", "--check", "--redis", "http://here", cwd=str(tmp_path))
    assert (malformed.code, malformed.err.split(": ")[1]) == (78, "redis")
