"""From topic to topic through Redis: how many messages a second Spark conflates, and how late.

Throughput is that of a backlog, read directly from Redis: Spark's own progress of all batches but
the first. Lateness is that of live messages: each contains the time of its publication, and a
subscriber of the conflated topic compares it with the time of arrival.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2

from bench.figure import Figure, percentile
from bench.servers.gateway import NDJSON
from tests.faults.setups.children import TIDEGATE
from tests.faults.setups.gateway import redis_binary
from tests.support.ports import lasting_port
from tidegate.pipeline.definitions.stream import read_definitions
from tidegate.pipeline.spark.session import open_session
from tidegate.pipeline.streams.checkpoint import Checkpoint
from tidegate.pipeline.streams.stream import Stream

KEYS = 10_000
BACKLOG, REQUEST_MESSAGES, BATCH_MESSAGES = 1_000_000, 10_000, 200_000
INTERVAL_MS, LATE_MS_MAX = 1_000, 600
LIVE_S, LIVE_MESSAGES, LIVE_EVERY_S, WARM_S = 25.0, 500, 0.1, 8.0
DEFINITION = """
gateway = "{gateway}"
[pipeline.{name}]
source = {{kind = "tidegate", topic = "{name}", address = "{redis}"}}
rows_per_batch = {rows}
key = ["/k"]
interval = "1s"
sink = {{topic = "{name}.1s"}}
"""


def figures() -> Iterator[Figure]:
    """Yield throughput and lateness."""
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-")))
        redis = held.enter_context(_redis(folder))
        gateway = held.enter_context(_gateway(redis))
        spark = open_session("local[2]")
        held.callback(spark.stop)
        with httpx2.Client(base_url=gateway, timeout=60, trust_env=False) as client:
            for name in ("backlog", "live"):
                topic = {"key": ["/k"], "history": {"messages": BACKLOG}}
                client.put(f"/v1/topics/{name}", json=topic).raise_for_status()
            for start in range(0, BACKLOG, REQUEST_MESSAGES):
                _publish(client, "backlog", start, REQUEST_MESSAGES)
            with _running(folder, "backlog", gateway, redis) as (stream, checkpoint):
                stream.start(spark, checkpoint, available_now=True)
                assert stream.query is not None
                stream.query.awaitTermination()
                yield from _throughput(stream)
            with _running(folder, "live", gateway, redis) as (stream, checkpoint):
                stream.start(spark, checkpoint, available_now=False)
                yield from _lateness(client, gateway)
                assert stream.query is not None
                stream.query.stop()


def _throughput(stream: Stream) -> Iterator[Figure]:
    assert stream.query is not None
    # Without the first: it starts the Python workers, and a long stream has one first batch only.
    batches = [batch for batch in stream.query.recentProgress if batch["numInputRows"]][1:]
    messages = stream.totals.messages - BATCH_MESSAGES  # Spark itself counts pages
    took_ms = sum(batch["durationMs"]["triggerExecution"] for batch in batches)
    yield Figure("topic to topic through Redis", messages / took_ms * 1_000, "messages/s")


def _lateness(client: httpx2.Client, gateway: str) -> Iterator[Figure]:
    ages_ms: list[float] = []
    begun = time.monotonic()
    listening = threading.Thread(target=_listen, args=(gateway, ages_ms, begun), daemon=True)
    listening.start()
    sent = 0
    while time.monotonic() - begun < LIVE_S:
        _publish(client, "live", sent, LIVE_MESSAGES)
        sent += LIVE_MESSAGES
        time.sleep(max(0.0, begun + sent / LIVE_MESSAGES * LIVE_EVERY_S - time.monotonic()))
    ages_ms.sort()
    yield Figure("live messages published", sent / (time.monotonic() - begun), "messages/s")
    for percent, at_most in ((50, None), (99, INTERVAL_MS + LATE_MS_MAX)):
        name = f"from publication to delivery behind 1 s, p{percent}"
        yield Figure(name, percentile(ages_ms, percent / 100), "ms", at_most=at_most)


def _listen(gateway: str, ages_ms: list[float], begun: float) -> None:
    """Collect the ages of messages of the conflated topic, after a time to warm up."""
    path = f"{gateway}/v1/topics/live.1s/subscribe"
    with httpx2.stream("GET", path, timeout=60, trust_env=False) as answer:
        ages_ms.extend(
            time.time() * 1_000 - json.loads(line[6:])["t"]
            for line in answer.iter_lines()
            if line.startswith('data: {"k"') and time.monotonic() - begun > WARM_S
        )


def _publish(client: httpx2.Client, topic: str, first: int, count: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    numbers = range(first, first + count)
    lines = (f'{{"k":{n * 7_919 % KEYS},"t":{now_ms},"price":101.25,"n":{n}}}' for n in numbers)
    body = "\n".join(lines).encode()
    path = f"/v1/topics/{topic}/messages"
    client.post(path, content=body, headers=NDJSON).raise_for_status()


@contextlib.contextmanager
def _running(
    folder: Path, name: str, gateway: str, redis: str
) -> Iterator[tuple[Stream, Checkpoint]]:
    file = folder / f"{name}.toml"
    text = DEFINITION.format(name=name, gateway=gateway, redis=redis, rows=BATCH_MESSAGES)
    file.write_text(text, encoding="utf-8")
    [definition] = read_definitions(file)
    with Checkpoint(definition) as checkpoint:
        yield Stream(definition), checkpoint


@contextlib.contextmanager
def _redis(folder: Path) -> Iterator[str]:
    port = lasting_port()
    words = ["--port", str(port), "--dir", str(folder), "--appendonly", "yes", "--save", ""]
    server = subprocess.Popen([str(redis_binary()), *words], stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


@contextlib.contextmanager
def _gateway(redis: str) -> Iterator[str]:
    command = [str(TIDEGATE), "serve", "--redis", redis, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1]
    finally:
        server.terminate()
        server.wait(10)
