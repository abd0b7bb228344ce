"""Messages over MQTT reach a topic: the command of the page, with a real broker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import ROOT
from tests.docs.site import block_run_by
from tests.support.commands import environment, serving
from tests.support.deadlines import HANGS_S
from tests.support.outside import require
from tests.support.ports import lasting_port
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.nightly

FLOOR = ROOT / "examples" / "factory-floor"
BIN = Path(sys.executable).parent
PATH = f"{BIN}:{os.environ['PATH']}:/usr/sbin"
"""Debian keeps the broker where only root looks for commands."""


@pytest.fixture
def broker() -> Iterator[int]:
    """The port of a broker that takes clients of this machine, and keeps nothing."""
    command = shutil.which("mosquitto", path=PATH)
    require(command is not None and shutil.which("mosquitto_sub") is not None, "no mosquitto")
    port = lasting_port()
    process = subprocess.Popen([str(command), "-p", str(port)], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert any(" running" in line for line in process.stderr)
        yield port
    finally:
        process.terminate()
        process.communicate(timeout=HANGS_S)


def test_what_machines_say_comes_to_the_topic(broker: int) -> None:
    host = "-h broker.example"
    text = block_run_by(__file__).text
    assert text.count(host) == 1
    place = f"-h 127.0.0.1 -p {broker}"
    say = ["mosquitto_pub", *place.split(), "-t", "plant/north/press-1", "-s"]
    with serving("--topics", str(FLOOR)) as address, Gateway(address) as gateway:
        bridge = subprocess.Popen(
            ["bash", "-c", text.replace(host, place)], start_new_session=True,
            env={**environment(), "PATH": PATH, "TIDEGATE_GATEWAY": address},
        )  # fmt: skip
        try:
            ends_at = time.monotonic() + HANGS_S
            while not (rows := list(gateway.sow("floor"))):
                # The broker keeps nothing for a bridge that is not there yet.
                subprocess.run(say, input=b'{"celsius": 61.5}', check=True, timeout=HANGS_S)
                assert time.monotonic() < ends_at
        finally:
            os.killpg(bridge.pid, signal.SIGTERM)
            bridge.wait(timeout=HANGS_S)
    [record] = map(json.loads, rows)
    assert (record["topic"], record["payload"]) == ("plant/north/press-1", {"celsius": 61.5})
