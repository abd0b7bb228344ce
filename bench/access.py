"""Access: what authentication adds to a flush, compared with the same gateway without it.

Every reader is a subject of its own, with a token of its own. Equal entitlements share lanes, so
subjects of ten roles with a filter each should cost what ten filters cost that readers ask for.
CPU time of the gateway, side by side in rounds; ratios hold from machine to machine. Two gateways
that do the same differ by some per cent for as long as they live, so each comparison begins several
pairs of them.
"""

from __future__ import annotations

import base64
import json
import selectors
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.figure import Figure, median
from bench.servers.gateway import KEY, TOPIC, Gateway, gateway
from bench.servers.process import HANGS_S, files_allow

READERS = 1_000
ROLES = 10
ROWS = (10, 100)
PAIRS = 3
ROUNDS = 5
FLUSHES = 10
OPTIONS = "conflation=10ms"
SETTLE_S = 0.3
RATIO_MAX = 1.03
MARKER = f'data: {{"{KEY[1:]}"'.encode()
SECRET = b"a secret of this benchmark, of 32 bytes or more"


def _lines(rows: int) -> bytes:
    """Return messages of which each role sees every tenth."""
    return b"\n".join(
        b'{"tickerId":"T%04d","desk":"d%d","bid":%d.25,"note":"%s"}'
        % (row, row % ROLES, row, b"as long as a real one is, and a little longer")
        for row in range(rows)
    )


@dataclass(slots=True)
class Readers:
    """A gateway and its readers."""

    server: Gateway
    rows_of: Callable[[int], int]
    sockets: list[socket.socket] = field(default_factory=list)
    _selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def open(self, count: int, request_of: Callable[[int], str]) -> None:
        """Connect readers; each has had its hello."""
        for number in range(count):
            reader = socket.create_connection(("127.0.0.1", self.server.port), HANGS_S)
            reader.sendall(request_of(number).encode())
            begun = b""
            while b"event: hello" not in begun:
                piece = reader.recv(1 << 16)
                if not piece:
                    raise RuntimeError(f"a reader was turned away: {begun[:300]!r}")
                begun += piece
            reader.setblocking(False)
            self.sockets.append(reader)
            self._selector.register(reader, selectors.EVENT_READ)

    def round(self, rows: int) -> float:
        """Publish some flushes, wait until each is everywhere; return the microseconds of a row."""
        time.sleep(SETTLE_S)
        began_s, events = self.server.process.cpu_s(), 0
        for _ in range(FLUSHES):
            self.server.publish(_lines(rows))
            events += self._arrived(len(self.sockets) * self.rows_of(rows))
        return (self.server.process.cpu_s() - began_s) / events * 1e6

    def close(self) -> None:
        """Disconnect the readers."""
        for reader in self.sockets:
            reader.close()
        self._selector.close()

    def _arrived(self, wanted: int) -> int:
        found, deadline = 0, time.monotonic() + HANGS_S
        while found < wanted:
            for key, _ in self._selector.select(1.0):
                # A marker that two pieces share is missed, so an event is one write: it is small.
                found += key.fileobj.recv(1 << 20).count(MARKER)  # type: ignore[union-attr]  # a socket
            if time.monotonic() > deadline:
                raise TimeoutError(f"{found:,} of {wanted:,} rows have come")
        return found


def figures() -> Iterator[Figure]:
    """Yield the CPU time of a row at a reader, with and without authentication, and the ratio."""
    if not files_allow(READERS):
        return
    for name, filters in (("all rows", False), (f"{ROLES} roles", True)):
        measured: dict[int, list[tuple[float, float]]] = {rows: [] for rows in ROWS}
        for _ in range(PAIRS):
            with ExitStack() as held:
                sides = _plain(held, filters=filters), _guarded(held, filters=filters)
                for rows in ROWS:
                    measured[rows] += _rounds(*sides, rows)
        for rows, pairs in measured.items():
            yield from _figures_of(f"{name}, {rows} rows", pairs)


def _rounds(plain: Readers, guarded: Readers, rows: int) -> Iterator[tuple[float, float]]:
    """Yield what a row costs without and with authentication, in rounds."""
    plain.round(rows), guarded.round(rows)  # what is made at the first time is made
    for _ in range(ROUNDS):
        # Strictly in turn: one that is asked twice in a row is 10 % cheaper, its caches are warm.
        yield plain.round(rows), guarded.round(rows)


def _figures_of(where: str, pairs: Sequence[tuple[float, float]]) -> Iterator[Figure]:
    without, with_tokens = (median(side) for side in zip(*pairs, strict=True))
    ratio = median([guarded / plain for plain, guarded in pairs])
    asked = "filters asked for" if "roles" in where else "no authentication"
    yield Figure(f"{where}: {asked}", without, "us CPU", scale="cpu")
    yield Figure(f"{where}: {READERS:,} subjects", with_tokens, "us CPU", scale="cpu")
    yield Figure(f"{where}: ratio", ratio, "times", at_most=RATIO_MAX, scale="ratio")


def _plain(held: ExitStack, *, filters: bool) -> Readers:
    server = held.enter_context(gateway())
    server.define()
    readers = Readers(server, _seen(filters=filters))
    held.callback(readers.close)

    def request_of(number: int) -> str:
        more = {"filter": f"/desk = 'd{number % ROLES}'"} if filters else {}
        return server.request(OPTIONS, **more)

    readers.open(READERS, request_of)
    return readers


def _guarded(held: ExitStack, *, filters: bool) -> Readers:
    keys = Path(held.enter_context(tempfile.TemporaryDirectory())) / "keys.json"
    secret = base64.urlsafe_b64encode(SECRET).rstrip(b"=").decode()
    keys.write_text(
        json.dumps({"keys": [{"kty": "oct", "k": secret, "alg": "HS256", "kid": "k1"}]})
    )
    server = held.enter_context(gateway(auth_keys=str(keys)))
    server.client.headers["Authorization"] = _bearer("root", {"can": ["read", "write", "admin"]})
    server.define()
    readers = Readers(server, _seen(filters=filters))
    held.callback(readers.close)

    def request_of(number: int) -> str:
        rows = {"filter": f"/desk = 'd{number % ROLES}'"} if filters else {}
        token = _bearer(f"subject-{number}", {"can": ["read"], **rows})
        return server.request(OPTIONS, f"Authorization: {token}")

    readers.open(READERS, request_of)
    return readers


def _seen(*, filters: bool) -> Callable[[int], int]:
    return lambda rows: rows // ROLES if filters else rows


def _bearer(sub: str, grant: Mapping[str, Any]) -> str:
    import jwt

    claims = {
        "sub": sub, "iss": "tidegate", "aud": "tidegate", "exp": int(time.time()) + 3_600,
        "tidegate": {"grants": [{"topics": TOPIC, **grant}]},
    }  # fmt: skip
    return "Bearer " + jwt.encode(claims, SECRET, "HS256", headers={"kid": "k1"})
