"""A million records in each format: the reader's time, and the gateway's CPU and memory."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pandas
import polars
import pyarrow

from bench.figure import Figure
from bench.servers.gateway import Gateway, gateway

RECORDS = 1_000_000
BODY_MESSAGES = 10_000
TOPIC = "big"
GROWTH_MIB = 64.0
FASTER = 10.0  # than JSON, for the reader
SAMPLE_S = 0.01
ROUNDS = 5
LONG_S = 3.0  # after which another round would tell nothing
MIB = 1 << 20

NDJSON = "application/x-ndjson"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"

NAMES = {NDJSON: "JSON lines", CSV: "CSV", ARROW: "Arrow"}

Load = Callable[[bytes], object]
READERS: dict[str, dict[str, Load]] = {
    NDJSON: {
        "pandas": lambda body: pandas.read_json(io.BytesIO(body), lines=True),
        "polars": polars.read_ndjson,
    },
    CSV: {
        "pandas": lambda body: pandas.read_csv(io.BytesIO(body)),
        "polars": polars.read_csv,
    },
    ARROW: {
        "pandas": lambda body: (
            pyarrow.ipc.open_stream(body).read_all().to_pandas(types_mapper=pandas.ArrowDtype)
        ),
        "polars": polars.read_ipc_stream,
    },
}


@dataclass(slots=True)
class Growth:
    """The most memory that a gateway had more than at first, in bytes."""

    bytes: int = 0


def figures(records: int = RECORDS) -> Iterator[Figure]:
    """Yield the figures of each format; the last ones compare Arrow with JSON for the reader."""
    with gateway(topic_keys_max=str(2 * records)) as server:
        server.define(TOPIC, "/id", history={"messages": 1})
        for start in range(0, records, BODY_MESSAGES):
            server.publish(_lines(start, min(records, start + BODY_MESSAGES)), TOPIC)
        with _growth(server) as growth:
            _read(server, ARROW, filter="FALSE")
        yield Figure("Arrow: growth as pyarrow is loaded, once", growth.bytes / MIB, "MiB")
        seconds: dict[tuple[str, str], float] = {}
        for media_type, readers in READERS.items():
            cpu_s, began_s = server.process.cpu_s(), time.monotonic()
            with _growth(server) as growth:
                body = _read(server, media_type)
            took_s, cpu_s = time.monotonic() - began_s, server.process.cpu_s() - cpu_s
            note = f"{len(body) / records:.0f} B a record, {took_s:.1f} s until it is read"
            name = NAMES[media_type]
            yield Figure(f"{name}: gateway", cpu_s / records * 1e6, "us CPU/record", note=note)
            yield Figure(f"{name}: growth", growth.bytes / MIB, "MiB", GROWTH_MIB)
            for tool, load in readers.items():
                seconds[media_type, tool] = taken_s = _taken_s(load, body)
                yield Figure(f"{name}: {tool}", taken_s, "s CPU")
    for tool in READERS[ARROW]:
        faster = seconds[NDJSON, tool] / seconds[ARROW, tool]
        yield Figure(f"{tool}: JSON by Arrow", faster, "x", at_least=FASTER)


def _lines(start: int, end: int) -> bytes:
    return b"\n".join(
        b'{"id":%d,"symbol":"S%05d","desk":"desk %d","price":%d.25,"volume":%d,"live":true}'
        % (9_007_199_254_740_993 + n, n % 50_000, n % 9, n % 900, n * 7)
        for n in range(start, end)
    )


def _read(server: Gateway, media_type: str, **query: str) -> bytes:
    path = f"/v1/topics/{TOPIC}/sow"
    answer = server.client.get(path, params=query, headers={"Accept": media_type})
    return answer.raise_for_status().content


def _taken_s(load: Load, body: bytes) -> float:
    """Return the CPU seconds of the best run of several, in all threads."""
    runs_s: list[float] = []
    while len(runs_s) < ROUNDS and sum(runs_s) < LONG_S:
        began_s = time.process_time()
        load(body)
        runs_s.append(time.process_time() - began_s)
    return min(runs_s)


@contextmanager
def _growth(server: Gateway) -> Iterator[Growth]:
    """Follow the memory of a gateway while something is read from it."""
    growth, at_first, is_over = Growth(), server.process.resident_bytes(), threading.Event()

    def follow() -> None:
        while not is_over.wait(SAMPLE_S):
            growth.bytes = max(growth.bytes, server.process.resident_bytes() - at_first)

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        yield growth
    finally:
        is_over.set()
        follower.join()
