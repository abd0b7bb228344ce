"""The gateway as a command: what it says when it listens, and why it would not."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path

import pytest

from tests.support.commands import address_of, run, serving, start
from tests.support.deadlines import HANGS_S
from tidegate.app.cli.serve import NOTHING_KEPT
from tidegate.clients.gateway import Gateway


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_listens_serves_and_ends(number: signal.Signals, code: int) -> None:
    process = start("serve", "--port", "0")
    address = address_of(process)
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d*", address)
    with Gateway(address) as gateway:
        gateway.publish("t", [b"1"])
        events = gateway.subscribe("t")
        assert next(events).name == "hello"
        process.send_signal(number)
        assert next(events).name == "goodbye"
        events.close()
    _, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == code
    assert NOTHING_KEPT in err


@pytest.mark.slow
def test_an_address_that_is_taken_is_78() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("serve", "--port", str(port))
    assert (ended.code, ended.out) == (78, "")
    assert f"Cannot listen on 127.0.0.1 port {port}: address already in use" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--data", "tidegate.txt"), "The store's folder tidegate.txt cannot be written"),
        (("--redis", "unix:///none/redis.sock"), "the bus does not reply"),
        (("--redis", "http://127.0.0.1"), "redis: Redis URL must specify one of the following"),
        (("--topics", "dir"), "dir: cannot be read: No such file or directory"),
        (("--archive", "none"), "archive: there is no folder none"),
        (("--host", "0.0.0.0"), "--insecure"),
        (("--config", "none.toml"), "none.toml"),
    ],
)
def test_what_cannot_be_had_is_78(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "tidegate.txt").touch()
    ended = run("serve", "--port", "0", *arguments, cwd=str(tmp_path))
    assert (ended.code, ended.out) == (78, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_published_is_there_after_another_start(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder = str(tmp_path / "store")
    for start_number in range(2):
        process = start("serve", "--port", "0", TIDEGATE_DATA=folder)
        with Gateway(address_of(process)) as gateway:
            if start_number == 0:
                gateway.put_topic("t", {"key": ["/k"]})
                gateway.publish("t", [b'{"k":1,"v":1}', b'{"k":1,"v":2}'])
            assert [json.loads(row) for row in gateway.sow("t")] == [{"k": 1, "v": 2}]
        process.send_signal(number)
        _, err = process.communicate(timeout=HANGS_S)
        assert NOTHING_KEPT not in err


@pytest.mark.slow
def test_a_second_gateway_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with serving("--data", folder):
        ended = run("serve", "--port", "0", "--data", folder)
    assert (ended.code, ended.out) == (78, "")
    assert "is in use by another gateway" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.slow
def test_a_merger_that_cannot_be_imported_is_78(tmp_path: Path) -> None:
    (tmp_path / "tidegate.toml").write_text('mergers = ["no.such.module:f"]', "utf-8")
    ended = run("serve", "--port", "0", cwd=str(tmp_path))
    assert (ended.code, ended.out) == (78, "")
    assert "no.such.module:f cannot be imported" in ended.err
    assert ended.err.count("\n") == 1
