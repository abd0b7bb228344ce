"""The dashboard job: 20,000 messages a second of 1,000 keys to 500 clients at 1 s.

A message is published when it is due, whatever happened to the one before. A screen is stale from
the moment at which the first change that it does not show was published, until a row of that key
arrives. Two gateways take the same job in turn: one with clients that read, one in which a tenth of
them is frozen, and one in which a tenth takes a few bytes a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.figure import Figure, median, percentile
from bench.servers.gateway import Gateway, gateway
from bench.servers.load import Load, load_on

CLIENTS = 500
KEYS = 1_000
REQUESTS_A_SECOND = 20  # each holds one message of every key
INTERVAL_S = 1.0
WARMING_S = 3.0
WINDOW_S = 8.0
ROUNDS = 5
SLOW_EVERY = 10
SLOW_BYTES = 20_000  # a second: a seventh of what one client gets
SAMPLED_EVERY = 10
MARKER = 'data: {"n":'
READY = "event: hell"  # as long as the marker
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
CPU_PERCENT_MAX = 8.0
LATE_S_MAX = 0.05  # beyond the interval
FROZEN_RATIO_MAX = 1.1  # relative to a run in which no client is frozen
# As long as the measurement: a gateway cuts a client that takes nothing for this long.
PATIENCE = "30m"


@dataclass(slots=True)
class Job:
    """A gateway with its clients and its feed."""

    gateway: Gateway
    load: Load
    published_ns: list[int] = field(default_factory=list)
    late_s: float = 0.0
    busy: list[float] = field(default_factory=list)
    load_busy: list[float] = field(default_factory=list)
    stale_s: list[float] = field(default_factory=list)
    kept_waiting: list[float] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Publish for some seconds, each request when it is due."""
        began = time.monotonic()
        for number in range(int(seconds * REQUESTS_A_SECOND)):
            due = began + number / REQUESTS_A_SECOND
            body = self._body(len(self.published_ns))
            time.sleep(max(0.0, due - time.monotonic()))
            self.late_s = max(self.late_s, time.monotonic() - due)
            self.published_ns.append(time.monotonic_ns())
            self.gateway.publish(body)

    def measure(self) -> None:
        """Run for a window, and note CPU and staleness."""
        self.run(INTERVAL_S + 1 / REQUESTS_A_SECOND)  # until every key has been shown
        for _ in self.load.samples():
            pass
        began, cpu_s, load_s = time.monotonic(), self.gateway.process.cpu_s(), self._load_s()
        waited_s = self.gateway.process.kept_waiting_s()
        self.run(WINDOW_S)
        seconds = time.monotonic() - began
        self.busy.append((self.gateway.process.cpu_s() - cpu_s) / seconds * 100)
        self.load_busy.append((self._load_s() - load_s) / seconds * 100)
        waited_s = self.gateway.process.kept_waiting_s() - waited_s
        self.kept_waiting.append(waited_s / seconds * 1_000)
        time.sleep(2 * INTERVAL_S)
        self.stale_s += self._staleness()

    def _staleness(self) -> Iterator[float]:
        """Yield how long each row's key had been stale when it came."""
        shown: dict[tuple[int, int], int] = {}
        for client, stamp, at_ns in self.load.samples():
            number, key = divmod(stamp, KEYS)
            before = shown.get((client, key))
            shown[client, key] = number
            if before is not None:
                yield (at_ns - self.published_ns[before + 1]) / 1e9

    def _load_s(self) -> float:
        return self.load.process.cpu_s()

    def _body(self, number: int) -> bytes:
        return b"\n".join(
            b'{"n":%d,"tickerId":"T%04d","exchange":"P","type":"quote","bid":%d.25,"bidSize":25200,'
            b'"ask":%d.75,"askSize":7900,"ts":%d}'
            % (number * KEYS + key, key, key % 500, key % 500, number)
            for key in range(KEYS)
        )


def figures() -> Iterator[Figure]:
    """Yield CPU and staleness, with all clients reading, with a frozen and with a slow tenth."""
    with ExitStack() as held:
        jobs = {name: _job(held, slow) for name, slow in _SLOW.items()}
        for job, slow in zip(jobs.values(), _SLOW.values(), strict=True):
            if slow is not None:
                job.load.slow_down(slow)
            job.run(WARMING_S)
        # In turn, so that other load of the machine affects each alike.
        for _ in range(ROUNDS):
            for job in jobs.values():
                job.measure()
        yield from _compared(jobs)


_SLOW = {"all read": None, "a tenth frozen": 0, "a tenth slow": SLOW_BYTES}


def _job(held: ExitStack, slow: int | None) -> Job:
    server = held.enter_context(gateway(write_timeout=PATIENCE))
    server.define()
    load = load_on(
        server.port, CLIENTS, server.request("conflation=1s"), MARKER, READY,
        sampled_every=SAMPLED_EVERY + 1, slow_every=0 if slow is None else SLOW_EVERY,
    )  # fmt: skip
    return Job(server, held.enter_context(load))


def _compared(jobs: dict[str, Job]) -> Iterator[Figure]:
    plain = jobs["all read"]
    for name, job in jobs.items():
        job.stale_s.sort()
        busy = median(job.busy)
        most = CPU_PERCENT_MAX if job is plain else None
        note = f"the load client took {median(job.load_busy):.0f} % of its core"
        yield Figure(f"{name}: CPU", busy, "% of a core", most, note=note, scale="cpu")
        note = f"other work kept the server waiting {median(job.kept_waiting):.0f} ms in a second"
        for share, at in SHARES.items():
            stale_ms = percentile(job.stale_s, at) * 1_000
            most = (INTERVAL_S + LATE_S_MAX) * 1_000 if share == "p99.9" else None
            yield Figure(f"{name}: staleness {share}", stale_ms, "ms", most, note=note)
        yield Figure(f"{name}: staleness, most", job.stale_s[-1] * 1_000, "ms")
        yield Figure(f"{name}: latest request", job.late_s * 1_000, "ms behind its time")
        if job is plain:
            continue
        most = FROZEN_RATIO_MAX if _SLOW[name] == 0 else None
        yield Figure(f"{name}: CPU, by that of all read", busy / median(plain.busy), "x", most)
        worst = percentile(job.stale_s, 0.999) / percentile(plain.stale_s, 0.999)
        yield Figure(f"{name}: staleness p99.9, by that of all read", worst, "x", most)
