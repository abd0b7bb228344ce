"""Publishers whose gateway is killed: what they send again is there once."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clients.gateway import Gateway
from clients.publishing import Published
from tests.support.commands import ENDS_S_MAX, address_of, command, environment, start

pytestmark = pytest.mark.slow

LINES = 6_000
PER_SECOND = 2_000


@contextmanager
def serving(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """A gateway that keeps what it has; killed at the end, if it was not before."""
    process = start("serve", "--port", str(port), "--data", str(folder))
    try:
        address_of(process)
        yield process
    finally:
        process.kill()
        process.communicate(timeout=ENDS_S_MAX)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def journal(gateway: Gateway, topic: str) -> list[object]:
    lines = gateway.messages(topic, limit=LINES * 2)
    return [json.loads(line)["value"] for line in lines]


def test_a_file_on_its_way_outlives_its_gateway(tmp_path: Path) -> None:
    file, port = tmp_path / "many.ndjson", free_port()
    file.write_bytes(b"".join(b"%d\n" % number for number in range(LINES)))
    address = f"http://127.0.0.1:{port}"
    arguments = ("--rate", str(PER_SECOND), "--gateway", address)
    with Gateway(address, patience_s=0.0) as gateway:
        with serving(tmp_path / "kept", port):
            gateway.put_topic("log", {"type": "series"})
            publishing = subprocess.Popen(
                command("publish", "log", str(file), *arguments),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
            )  # fmt: skip
            give_up_at = time.monotonic() + ENDS_S_MAX
            while gateway.topic("log")["messages_in"] < LINES // 3:
                assert time.monotonic() < give_up_at
                time.sleep(0.02)
        with serving(tmp_path / "kept", port):
            out, err = publishing.communicate(timeout=ENDS_S_MAX)
            assert (publishing.returncode, err.count("trying again")) == (0, 1), err
            assert out.startswith(f"Published {LINES:,} messages to log in ")
            assert journal(gateway, "log") == list(range(LINES))


def test_a_retry_and_a_commit_after_a_kill_are_known(tmp_path: Path) -> None:
    port = free_port()

    def say(gateway: Gateway) -> list[Published]:
        return [
            gateway.publish("log", [b"1", b"2"], idempotency_key="mine"),
            gateway.commit("log", "p", 1, 1, ["a", "b"]),
        ]

    with Gateway(f"http://127.0.0.1:{port}") as gateway:
        with serving(tmp_path, port):
            gateway.put_topic("log", {"type": "series"})
            gateway.stage("log", [b"4"], "b")
            gateway.stage("log", [b"3"], "a")
        with serving(tmp_path, port):
            first = say(gateway)
        with serving(tmp_path, port):
            again = say(gateway)
            assert journal(gateway, "log") == [1, 2, 3, 4]
    assert [published.messages for published in first] == [2, 2]
    assert [published.duplicate for published in again] == [True, True]
    assert (again[0].first, again[0].last) == (first[0].first, first[0].last)
