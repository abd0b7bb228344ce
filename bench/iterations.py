"""The longest iteration of the event loop for each request, in CPU time.

While an iteration runs, nobody else is served. Each part starts its own gateway with a large state,
sends each request, and reads the longest iteration meanwhile, and the calls that the watchdog saw
in it. The last figure of a part is the 99.9th percentile of all its iterations.
"""

from __future__ import annotations

import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from bench.engine import payloads
from bench.figure import Figure, percentile
from bench.servers.gateway import Gateway, gateway
from bench.servers.process import HANGS_S, files_allow, waited_for

BIG = "big"
KEYS = 100_000
BODY_MESSAGES = 10_000
TOPICS = 9_900  # of 10,000 that are allowed
TOPICS_OF_PATTERN = 250  # near `session_subscriptions_max`
RECORDS_OF_PATTERN = 500  # of each of these topics: as many as one step reads
SESSIONS = 9_900  # of 10,000 that are allowed
LEAVING = 2_500  # a quarter of the sessions, after which garbage is collected
REPLAYS = 50
SUBSCRIPTION_MS = 50.0  # over 100,000 records, in an iteration of the loop
ADMINISTRATION_MS = 250.0  # over a million records
SHARE = 0.999
SETTLES_S = 0.3
CHECKS_S = 2.5  # two checks of its connections by the gateway: then all have left
TIMED_COMMAND = (sys.executable, "-m", "bench.servers.iterations")

Work = Callable[[], object]
Query = dict[str, str | int]


class TimedGateway:
    """A gateway whose event-loop iterations are timed."""

    def __init__(self, held: ExitStack, **settings: str) -> None:
        self._found = Path(held.enter_context(tempfile.TemporaryDirectory()), "iterations")
        settings |= {
            "loop_held_max": "20ms",  # so that the watchdog has sampled each iteration that counts
            "write_timeout": "10m",  # so that no reader is cut while all keys change
        }
        started: Any = partial(gateway, command=(*TIMED_COMMAND, str(self._found)))
        self.server: Gateway = held.enter_context(started(**settings))
        self.all_s: list[float] = []

    def measured(self, name: str, work: Work, wanted_ms: float = SUBSCRIPTION_MS) -> Figure:
        """Do some work, and return the longest iteration meanwhile."""
        self.server.process.popen.send_signal(signal.SIGUSR1)
        work()
        time.sleep(SETTLES_S)  # what a request leaves behind is done after its answer
        self.server.process.popen.send_signal(signal.SIGUSR2)
        waited_for(self._found.exists, "the iterations")
        lines = [line.partition(" ") for line in self._found.read_text().splitlines()]
        self._found.unlink()
        iterations = [(int(micros) / 1e6, calls) for micros, _, calls in lines]
        self.all_s += [seconds for seconds, _ in iterations]
        longest_s, calls = max(iterations)
        return Figure(name, longest_s * 1_000, "ms CPU", wanted_ms, note=calls)

    def total(self, name: str) -> Figure:
        """Return the percentile of all iterations that were measured."""
        self.all_s.sort()
        note = f"of {len(self.all_s):,} iterations"
        value = percentile(self.all_s, SHARE) * 1_000
        return Figure(f"{name}: all iterations, p99.9", value, "ms CPU", SUBSCRIPTION_MS, note=note)


def figures(parts: str = "", keys: int = KEYS) -> Iterator[Figure]:
    """Yield the longest iteration by request; `parts`: names of some, else of all."""
    for name, part in PARTS.items():
        if not parts or name in parts.split(","):
            with ExitStack() as held:
                yield from part(held, name, keys)


# --- One topic with many records


def _records(held: ExitStack, part: str, keys: int) -> Iterator[Figure]:
    timed = TimedGateway(held)
    server = timed.server
    server.define(BIG, history={"messages": keys})
    for body in _bodies(keys):
        server.publish(body, BIG)

    def get(path: str, accept: str = "*/*", **query: str | int) -> Work:
        return lambda: _read(server, f"/v1/topics/{BIG}/{path}", query, accept=accept)

    def subscribed(**query: str | int) -> Work:
        return lambda: _read(server, f"/v1/topics/{BIG}/subscribe", query, b"event: group_end")

    kinds: dict[str, Work] = {
        "publish in one request": lambda: server.publish(_body(range(min(keys, KEYS))), BIG),
        "sow": get("sow"),
        "sow as CSV": get("sow", "text/csv"),
        "sow as Arrow": get("sow", "application/vnd.apache.arrow.stream"),
        "sow in order": get("sow", order_by="/ask DESC,/tickerId"),
        "sow with a filter": get("sow", filter="/note LIKE 'real.*s$'"),
        "sow of some in order": get("sow", filter="/bid > 100", order_by="/ask", top_n=100),
        "sow in the past": lambda: _read(
            server, f"/v1/topics/{BIG}/sow", {"as_of": f"{int(time.time() * 1_000)}"}
        ),
        "journal": get(f"messages?from=epoch&limit={keys}"),
        "journal from the end": get("messages?limit=1000"),
        "topic": lambda: _read(server, f"/v1/topics/{BIG}"),
        "subscribe with a snapshot": subscribed(options="conflation=1s"),
        "subscribe with a filter": subscribed(options="conflation=1s", filter="/bid > 100"),
        "subscribe in order": subscribed(options="conflation=1s", order_by="/ask DESC"),
        "subscribe to a window": subscribed(options="top_n=100", order_by="/ask DESC"),
        "subscribe to groups": subscribed(
            options="projection=[/bid,SUM(/bidSize) AS /sum],grouping=[/bid]"
        ),
        f"{REPLAYS} replays at once": lambda: _replays(server),
        "metrics": lambda: _read(server, "/metrics"),
    }
    for name, work in kinds.items():
        yield timed.measured(f"{part}: {name}", work)
    for options in BEHIND:
        name = f"{part}: behind by all keys, {options}"
        yield timed.measured(name, partial(_behind, server, options, keys))
    change = partial(_queue, server, "conflation=100ms,receipt", keys, "conflation=5s,receipt")
    yield timed.measured(f"{part}: a change of one behind by all keys", change)
    yield timed.measured(f"{part}: unsubscribe of a full queue", partial(_queue, server))
    removed = partial(_ask, server, "DELETE", f"/v1/topics/{BIG}/sow?filter=/bid%20%3E%20100")
    yield timed.measured(f"{part}: remove records by a filter", removed)
    yield timed.measured(f"{part}: a view of it", partial(_ask, server, "PUT", VIEW, VIEW_DOCUMENT))
    _ask(server, "DELETE", VIEW)
    deleted = partial(_ask, server, "DELETE", f"/v1/topics/{BIG}")
    yield timed.measured(f"{part}: delete the topic", deleted, ADMINISTRATION_MS)
    yield timed.total(part)


VIEW = "/v1/topics/view"
VIEW_DOCUMENT: dict[str, object] = {
    "source": {
        "topic": BIG,
        "interval": "1s",
        "grouping": ["/bid"],
        "projection": ["SUM(/bidSize) AS /sum"],
    }
}
BEHIND = (
    "conflation=100ms",
    "conflation=100ms,receipt",
    "conflation=100ms,pace=key",
    "conflation=100ms,reduce=[/bidSize:sum]",
    "conflation=100ms,select=[-/,+/tickerId,+/bid]",
)


def _behind(server: Gateway, options: str, keys: int) -> None:
    """Subscribe, read nothing while all keys change twice, and then read everything."""
    with socket.create_connection(("127.0.0.1", server.port), HANGS_S) as stream:
        # With the kernel's default buffer: through one of 4 KiB, reading would take minutes.
        stream.sendall(server.request(options, topic=BIG).encode())
        time.sleep(SETTLES_S)
        for body in (*_bodies(keys), *_bodies(keys)):
            server.publish(body, BIG)
        time.sleep(SETTLES_S)
        stream.settimeout(1.0)
        try:
            while stream.recv(1 << 20):
                pass
        except TimeoutError:
            pass


def _queue(server: Gateway, options: str = "", keys: int = 9_000, changed: str = "") -> None:
    """Publish to a session that is not read, and end its subscription, or change its options."""
    subscription = {"topic": BIG, "command": "subscribe", "options": options}
    created = server.client.post("/v1/sessions", json={"subscriptions": [subscription]})
    session = created.raise_for_status().json()["session"]
    with socket.create_connection(("127.0.0.1", server.port), HANGS_S) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        path = f"/v1/sessions/{session}/events"
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        time.sleep(SETTLES_S)
        for body in _bodies(keys):
            server.publish(body, BIG)
        time.sleep(SETTLES_S)
        name = server.client.get(f"/v1/sessions/{session}").json()["subscriptions"][0]["sub"]
        subscribed = f"/v1/sessions/{session}/subscriptions/{name}"
        if changed:
            _ask(server, "PATCH", subscribed, {"options": changed})
        else:
            _ask(server, "DELETE", subscribed)
    server.client.delete(f"/v1/sessions/{session}")


def _replays(server: Gateway) -> None:
    options = "bookmark=epoch,conflation=1s,conflation_key=[/bid]"
    request = server.request(options, topic=BIG).encode()
    with ExitStack() as held:
        streams = [
            held.enter_context(socket.create_connection(("127.0.0.1", server.port), HANGS_S))
            for _ in range(REPLAYS)
        ]
        for stream in streams:
            stream.sendall(request)
        for stream in streams:
            stream.recv(1 << 16)
        time.sleep(1.0)


# --- Many topics


def _topics(held: ExitStack, part: str, keys: int) -> Iterator[Figure]:
    timed = TimedGateway(held, metrics_topics_max="10000")
    server = timed.server
    for number in range(TOPICS):
        name = f"{'a' if number < TOPICS_OF_PATTERN else 'b'}.{number:05}"
        server.define(name)
        server.publish(_body(range(RECORDS_OF_PATTERN if number < TOPICS_OF_PATTERN else 1)), name)

    def pattern(command: str, until: bytes) -> Work:
        query: Query = {"options": "conflation=1s", "command": command}
        return lambda: _read(server, "/v1/topics/a.%3E/subscribe", query, until)

    kinds: dict[str, Work] = {
        "list a page of 1,000": lambda: _read(server, "/v1/topics", {"limit": 1_000}),
        "list by a prefix": lambda: _read(server, "/v1/topics", {"limit": 10, "prefix": "b."}),
        "metrics": lambda: _read(server, "/metrics"),
        "readyz": lambda: _read(server, "/readyz"),
        "subscribe to a pattern": pattern("subscribe", b"event: hello"),
        "sow of a pattern": pattern("sow", b"event: goodbye"),
        "explain": lambda: _ask(
            server, "POST", "/v1/explain", {"topic": "a.00001", "options": "conflation=1s"}
        ),
        "subscribe to a pattern of too many": lambda: _read(
            server, "/v1/topics/b.%3E/subscribe", until=b"event: hello"
        ),
        "subscribe to a pattern with a filter": lambda: _read(
            server, "/v1/topics/a.%3E/subscribe", {"filter": LONG_FILTER}, b"event: hello"
        ),
        "subscribe to a pattern in order": lambda: _read(
            server, "/v1/topics/a.%3E/subscribe", {"order_by": "/ask DESC"}, b"event: hello"
        ),
        "one more topic": lambda: server.define("c.1"),
    }
    for name, work in kinds.items():
        yield timed.measured(f"{part}: {name}", work)
    yield from _of_many_subscriptions(timed, part)
    # A subscription and a lane in each.
    stream = held.enter_context(socket.create_connection(("127.0.0.1", server.port), HANGS_S))
    query = "options=conflation%3D1s&command=subscribe"
    stream.sendall(
        f"GET /v1/topics/a.%3E/subscribe?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    )
    stream.recv(1 << 16)
    listed = server.client.get("/v1/sessions").json()["sessions"]
    [session] = [each["session"] for each in listed if each["state"] == "attached"]
    of_session = f"/v1/sessions/{session}"
    of_pattern = f"{of_session}/subscriptions/s1"
    kinds = {
        "lanes": lambda: _read(server, "/v1/lanes"),
        "the session of a pattern": lambda: _read(server, of_session),
        "list with subscriptions": lambda: _read(server, "/v1/topics", {"limit": 1_000}),
        "change a pattern": lambda: _ask(server, "PATCH", of_pattern, {"options": "conflation=2s"}),
        "unsubscribe a pattern": lambda: _ask(server, "DELETE", of_pattern),
        "close a session": lambda: _ask(server, "DELETE", of_session),
    }
    for name, work in kinds.items():
        yield timed.measured(f"{part}: {name}", work)
    yield timed.total(part)


LONG_FILTER = " OR ".join(f"(/bid > {number} AND /note LIKE 'a.*{number}')" for number in range(24))


def _of_many_subscriptions(timed: TimedGateway, part: str) -> Iterator[Figure]:
    """Yield the longest iteration for a session of many subscriptions, and for its readers."""
    server = timed.server
    named = [{"topic": f"a.{number:05}"} for number in range(TOPICS_OF_PATTERN)]
    patterns = [{"topic": f"{topic['topic']}.>"} for topic in named]
    sessions: list[str] = []

    def created(subscriptions: list[dict[str, str]]) -> None:
        answer = server.client.post("/v1/sessions", json={"subscriptions": subscriptions})
        sessions.append(answer.raise_for_status().json()["session"])

    yield timed.measured(f"{part}: a session of {TOPICS_OF_PATTERN}", lambda: created(named))
    events = f"/v1/sessions/{sessions[0]}/events"
    for name in ("its reader", "its next reader"):
        yield timed.measured(f"{part}: {name}", lambda: _read(server, events, {}, b"group_end"))
    name = f"{part}: a session of {TOPICS_OF_PATTERN} patterns"
    yield timed.measured(name, lambda: created(patterns))
    for session in sessions:
        server.client.delete(f"/v1/sessions/{session}").raise_for_status()


# --- Many sessions


def _sessions(held: ExitStack, part: str, keys: int) -> Iterator[Figure]:
    timed = TimedGateway(held)
    server = timed.server
    server.define(BIG)
    files_allow(SESSIONS)  # each session is a connection of this process, too
    streams: list[socket.socket] = []
    requests = [server.request(options, topic=BIG).encode() for options in ("", "conflation=1s")]
    for number in range(SESSIONS):
        stream = socket.create_connection(("127.0.0.1", server.port), HANGS_S)
        held.enter_context(stream)
        stream.sendall(requests[number % 2])
        streams.append(stream)
    waited_for(lambda: _sessions_of(server) == SESSIONS, "the sessions")
    kinds: dict[str, Work] = {
        "list a page of 1,000": lambda: _read(server, "/v1/sessions", {"limit": 1_000}),
        "metrics": lambda: _read(server, "/metrics"),
        "lanes": lambda: _read(server, "/v1/lanes"),
        "topic": lambda: _read(server, f"/v1/topics/{BIG}"),
        "publish": lambda: server.publish(b'{"tickerId":1}', BIG),
        "change the policy": lambda: _ask(
            server, "PATCH", f"/v1/topics/{BIG}", {"conflation": "always"}
        ),
        f"{LEAVING:,} leave": lambda: _leave(streams[:LEAVING]),
        "delete a topic": lambda: _ask(server, "DELETE", f"/v1/topics/{BIG}"),
    }
    administration = ("change the policy", "delete a topic")
    for name, work in kinds.items():
        wanted_ms = ADMINISTRATION_MS if name in administration else SUBSCRIPTION_MS
        yield timed.measured(f"{part}: {name}", work, wanted_ms)
    yield timed.total(part)


def _leave(streams: Sequence[socket.socket]) -> None:
    for stream in streams:
        stream.close()
    time.sleep(CHECKS_S)


def _sessions_of(server: Gateway) -> int:
    time.sleep(SETTLES_S)  # each check is a request of its own
    document = server.client.get(f"/v1/topics/{BIG}").raise_for_status().json()
    return int(document["subscriptions"])


PARTS = {"records": _records, "topics": _topics, "sessions": _sessions}


def _bodies(keys: int) -> Iterator[bytes]:
    """Yield requests that publish each key once."""
    for start in range(0, keys, BODY_MESSAGES):
        yield _body(range(start, min(keys, start + BODY_MESSAGES)))


def _body(numbers: range) -> bytes:
    texts = _texts()
    return b"\n".join(
        texts[number % len(texts)].replace(b'"tickerId":"T', b'"tickerId":"%07d' % number, 1)
        for number in numbers
    )


@lru_cache
def _texts() -> list[bytes]:
    return list(payloads())


def _ask(
    server: Gateway, method: str, path: str, document: dict[str, object] | None = None
) -> None:
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
    server.client.request(method, path, json=document, headers=headers).raise_for_status()


def _read(
    server: Gateway,
    path: str,
    query: Query | None = None,
    until: bytes = b"",
    accept: str = "*/*",
) -> None:
    """Send a request, and read its answer to the end, or until it contains `until`."""
    bare = {"Accept-Encoding": "identity", "Accept": accept}
    with server.client.stream("GET", path, params=query, headers=bare) as answer:
        if answer.status_code >= 400:
            answer.read()
            raise RuntimeError(f"{path}: {answer.text[:300]}")
        last = b""
        for piece in answer.iter_raw():  # as it arrives, and not in whole blocks
            if until and until in last + piece:
                break
            last = piece[-len(until) :]
