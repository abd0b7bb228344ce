"""CPU of a service with an embedded topic, and of a gateway, under the same load.

1,000 subscribers at 500 ms, 10,000 messages a second of 100 keys. The service publishes to itself;
the gateway is published to over HTTP, by this process.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from bench.servers import embedded
from bench.servers.gateway import TOPIC, Gateway, gateway
from bench.servers.load import load_on
from bench.servers.process import HANGS_S, SERVER_CORE, Process, running

SUBSCRIBERS = 1_000
MESSAGES_A_SECOND = 10_000
OPTIONS = "conflation=500ms"
SETTLED_S, MEASURED_S = 3.0, 20.0
EVENT, READY = 'data: {"tickerId":', "event: hello"


def figures() -> Iterator[tuple[str, float, str]]:
    """Yield name, value and unit of each figure."""
    command = [sys.executable, "-m", "bench.servers.embedded", str(MESSAGES_A_SECOND)]
    with running(command, (SERVER_CORE,)) as process:
        port = int(process.read())
        yield from measured("embedded, under uvicorn", process, port)
    with gateway() as serving, published(serving):
        yield from measured("gateway", serving.process, serving.port)


def measured(name: str, process: Process, port: int) -> Iterator[tuple[str, float, str]]:
    """Yield what a server takes while its subscribers get their rows."""
    lines = [
        f"GET /v1/topics/{TOPIC}/subscribe?options={OPTIONS}&command=subscribe HTTP/1.1",
        f"Host: localhost:{port}",
        "Accept: text/event-stream",
    ]
    request = "\r\n".join([*lines, "", ""])
    with load_on(port, SUBSCRIBERS, request, EVENT, READY) as load:
        time.sleep(SETTLED_S)
        before, cpu_s, began = load.counted(), process.cpu_s(), time.monotonic()
        time.sleep(MEASURED_S)
        after, cpu_s, seconds = load.counted(), process.cpu_s() - cpu_s, time.monotonic() - began
        yield f"{name}: CPU", 100 * cpu_s / seconds, "% of a core"
        rows = (after.events - before.events) / seconds / SUBSCRIBERS
        yield f"{name}: rows of a subscriber", rows, "a second"
        yield f"{name}: memory", process.resident_bytes() / 1e6, "MB"


@contextlib.contextmanager
def published(serving: Gateway) -> Iterator[None]:
    """Publish what the embedded topic publishes, in a thread, while the block runs."""
    serving.define()
    second = [b"\n".join(batch) for batch in embedded.batches(MESSAGES_A_SECOND)]
    stopping = threading.Event()

    def publish() -> None:
        due_s = time.monotonic()
        while True:
            for body in second:
                due_s += 1 / embedded.BATCHES_A_SECOND
                if stopping.wait(max(0.0, due_s - time.monotonic())):
                    return
                serving.publish(body)

    publishing = threading.Thread(target=publish)
    publishing.start()
    try:
        yield
    finally:
        stopping.set()
        publishing.join(HANGS_S)
