"""Publishers whose gateway is killed: what they send again is there once."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.commands import address_of, command, environment, start
from tests.support.deadlines import HANGS_S, LOOPS_S
from tests.support.ports import lasting_port
from tidegate.clients.answers import Published
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.system

LINES = 2_000
PER_SECOND = 2_000


@contextmanager
def serving(folder: Path, address: str = "") -> Iterator[str]:
    """A gateway that keeps what it has, and its address; killed at the end.

    `address`: that of one before it, in whose place it comes.
    """
    port = address.rpartition(":")[2] or str(lasting_port())
    process = start("serve", "--port", port, "--data", str(folder))
    try:
        yield address_of(process)
    finally:
        process.kill()
        process.communicate(timeout=HANGS_S)


def journal(gateway: Gateway, topic: str) -> list[object]:
    lines = gateway.messages(topic, limit=LINES * 2)
    return [json.loads(line)["value"] for line in lines]


def test_a_file_on_its_way_outlives_its_gateway(tmp_path: Path) -> None:
    file = tmp_path / "many.ndjson"
    file.write_bytes(b"".join(b"%d\n" % number for number in range(LINES)))
    with ExitStack() as stack:
        with serving(tmp_path / "kept") as address:
            gateway = stack.enter_context(Gateway(address, patience_s=0.0))
            arguments = ("--rate", str(PER_SECOND), "--gateway", address)
            gateway.put_topic("log", {"type": "series"})
            publishing = subprocess.Popen(
                command("publish", "log", str(file), *arguments),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(),
            )
            give_up_at = time.monotonic() + LOOPS_S
            while gateway.topic("log")["messages_in"] < LINES // 3:
                assert time.monotonic() < give_up_at
                time.sleep(0.02)
        with serving(tmp_path / "kept", address):
            out, err = publishing.communicate(timeout=HANGS_S)
            assert (publishing.returncode, err.count("trying again")) == (0, 1), err
            assert out.startswith(f"Published {LINES:,} messages to log in ")
            assert journal(gateway, "log") == list(range(LINES))


def test_a_retry_and_a_commit_after_a_kill_are_known(tmp_path: Path) -> None:
    def say(gateway: Gateway) -> list[Published]:
        return [
            gateway.publish("log", [b"1", b"2"], idempotency_key="mine"),
            gateway.commit("log", "p", 1, 1, ["a", "b"]),
        ]

    with ExitStack() as stack:
        with serving(tmp_path) as address:
            gateway = stack.enter_context(Gateway(address))
            gateway.put_topic("log", {"type": "series"})
            gateway.stage("log", [b"4"], "b")
            gateway.stage("log", [b"3"], "a")
        with serving(tmp_path, address):
            first = say(gateway)
        with serving(tmp_path, address):
            again = say(gateway)
            assert journal(gateway, "log") == [1, 2, 3, 4]
    assert [published.messages for published in first] == [2, 2]
    assert [published.duplicate for published in again] == [True, True]
    assert (again[0].first, again[0].last) == (first[0].first, first[0].last)
