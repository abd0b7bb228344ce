"""Publishers whose gateway is killed: what they send again is there once."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.commands import address_of, command, environment, serving_here, start
from tests.support.deadlines import HANGS_S, LOOPS_S
from tests.support.ports import lasting_port
from tidegate.clients.answers import Published
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.system

LINES = 2_000


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


@pytest.mark.nightly
def test_what_is_published_while_its_gateway_is_killed_is_there_once(tmp_path: Path) -> None:
    lines = [b"%d\n" % number for number in range(LINES)]
    with ExitStack() as stack:
        with serving(tmp_path / "kept") as address:
            gateway = stack.enter_context(Gateway(address, patience_s=0.0))
            gateway.put_topic("log", {"type": "series"})
            publishing = stack.enter_context(published_from_a_pipe(address))
            assert publishing.stdin is not None
            publishing.stdin.write(b"".join(lines[: LINES // 2]))
            publishing.stdin.flush()
            give_up_at = time.monotonic() + LOOPS_S
            while gateway.topic("log")["messages_in"] < LINES // 2:
                assert time.monotonic() < give_up_at
                time.sleep(0.02)
        publishing.stdin.write(b"".join(lines[LINES // 2 :]))
        publishing.stdin.flush()
        assert publishing.stderr is not None
        assert b"trying again" in publishing.stderr.readline()
        # In a thread, as a process may take longer to start than the command is patient.
        with serving_here(port=int(address.rpartition(":")[2]), data=str(tmp_path / "kept")):
            out, err = publishing.communicate(timeout=HANGS_S)
            assert (publishing.returncode, err) == (0, b"")
            assert out.startswith(b"Published %s messages to log in " % f"{LINES:,}".encode())
            assert journal(gateway, "log") == list(range(LINES))


@contextmanager
def published_from_a_pipe(address: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command that publishes what is written to it; killed at the end."""
    process = subprocess.Popen(
        command("publish", "log", "-", "--gateway", address),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=HANGS_S)


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
