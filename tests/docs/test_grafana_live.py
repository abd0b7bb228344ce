"""The example for Grafana Live pushes each flush; a stand-in takes the place of Grafana."""

from __future__ import annotations

import queue
import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dev import ROOT
from tests.docs.site import block_run_by
from tests.support.commands import environment, serving
from tests.support.deadlines import HANGS_S
from tidegate.clients.gateway import Gateway

PROGRAM = ROOT / "examples" / "grafana-live" / "push.py"
GIVEN = {"http://127.0.0.1:3000": "$OURS", "glsa_…": "t-1", "python ": f"exec {sys.executable} "}
"""What the page leaves to its reader."""
LINE = re.compile(r"(?P<topic>\S+?),symbol=(?P<label>\S+) (?P<fields>.+) (?P<at>\d{19})")


class Push(BaseHTTPRequestHandler):
    """Takes what Grafana takes at /api/live/push/STREAM, and fails the first time."""

    taken: queue.Queue[tuple[str, str | None, str]]
    failures: list[int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.taken.put((self.path, self.headers["Authorization"], body))
        self.send_response(self.failures.pop() if self.failures else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


@pytest.fixture
def grafana() -> Iterator[tuple[str, type[Push]]]:
    names = {"taken": queue.Queue(), "failures": [503]}
    handler = type("PushOnce", (Push,), names)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler
        server.shutdown()
        thread.join()


@pytest.mark.nightly
def test_each_flush_is_pushed_and_a_refused_one_is_passed_over(
    grafana: tuple[str, type[Push]],
) -> None:
    address, handler = grafana
    with serving() as ours, Gateway(ours) as gateway:
        gateway.put_topic("prices", {"key": ["/symbol"]})
        gateway.publish("prices", [b'{"symbol": "IBM", "price": 150.5, "size": 100}'])
        text = block_run_by(__file__).text
        for theirs, given in GIVEN.items():
            assert text.count(theirs) == 1
            text = text.replace(theirs, given)
        variables = {"TIDEGATE_GATEWAY": ours, "OURS": address, "PYTHONWARNINGS": "error"}
        pushing = subprocess.Popen(
            ["bash", "-c", text], cwd=ROOT, env={**environment(), **variables},
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            path, token, first = handler.taken.get(timeout=HANGS_S)
            assert (path, token) == ("/api/live/push/tidegate", "Bearer t-1")
            lines = [b'{"symbol": "IBM", "price": %d, "size": 7}' % price for price in range(5)]
            gateway.publish("prices", [*lines, b'{"symbol": "AIG", "price": 7.5, "size": 1}'])
            pushed = ""
            while "AIG" not in pushed or "price=4i" not in pushed:
                pushed += handler.taken.get(timeout=HANGS_S)[2] + "\n"
        finally:
            pushing.terminate()
            _, complaint = pushing.communicate(timeout=HANGS_S)
    assert LINE.fullmatch(first)
    assert all(LINE.fullmatch(line) for line in pushed.splitlines())
    assert len(pushed.splitlines()) == 2
    assert "503" in complaint


def test_a_line_is_what_the_protocol_says() -> None:
    line: Any = runpy.run_path(str(PROGRAM))["line"]
    message = {"symbol": "a b,c=d", "n": 1, "x": 1.5, "ok": True, "list": [1], "none": None}
    wanted = r"my\ topic,symbol=a\ b\,c\=d n=1i,x=1.5,ok=True 7"
    assert line("my topic", "symbol", message, 7) == wanted
    quoted = line("t", "id", {"id": 1, "t e": 'say "x\\y"'}, 7)
    assert quoted == r't,id=1 t\ e="say \"x\\y\"" 7'
