"""Command and target are killed at random instants: every message arrives."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis import Redis
from redis.exceptions import RedisError

from tests.pipeline.ingest.ingesting import eventually
from tests.support import commands
from tests.support.buses import BusServer, binary_of
from tests.support.commands import serving_here
from tests.support.profiles import SEED
from tests.support.rules import rule
from tidegate.clients.gateway import Gateway

pytestmark = [pytest.mark.redis, pytest.mark.nightly]
MESSAGES = 1_500


@rule("forward-1")
def test_every_message_arrives_at_least_once_whatever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    server = BusServer(binary_of("redis"), tmp_path)
    server.start()
    file = tmp_path / "targets.toml"
    file.write_text(f"""
        [forward.a]
        source = {{topic = "t", options = "conflation=none,bookmark=epoch"}}
        sink = {{kind = "redis", address = "{server.url}", stream = "out"}}
    """)

    def start(address: str) -> subprocess.Popen[str]:
        return commands.start("forward", str(file), TIDEGATE_GATEWAY=address)

    with (
        serving_here() as address,
        Gateway(address) as gateway,
        Redis.from_url(server.url) as redis,
    ):
        gateway.put_topic("t", {"conflation": "off"})

        def publish() -> None:
            for number in range(MESSAGES):
                gateway.publish("t", {"n": number})
                time.sleep(0.002)

        publishing = threading.Thread(target=publish)
        publishing.start()
        command = start(address)
        while publishing.is_alive():
            time.sleep(chance.uniform(0.3, 1.5))
            command.kill()
            command.communicate()
            if chance.random() < 0.4:
                server.kill()
                server.start()
            command = start(address)
        publishing.join()

        def found() -> list[int]:
            try:
                entries: Any = redis.xrange("out")
            except RedisError:
                return []
            return [msgspec.json.decode(fields[b"value"])["n"] for _, fields in entries]

        eventually(lambda: len(set(found())), MESSAGES)
        command.kill()
        command.communicate()
        numbers = found()
    server.kill()
    # A repetition begins somewhere before and goes on in order: nothing is left out on the way.
    highest = -1
    for number in numbers:
        assert number <= highest + 1
        highest = max(highest, number)
