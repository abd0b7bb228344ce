"""Rows are posted as signed arrays; what the server refuses is kept, what it misses is repeated."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.pipeline.forward.forwarding import definitions, forwarding, receiving
from tests.pipeline.ingest.ingesting import eventually, journal
from tests.support.commands import serving_here
from tests.support.rules import rule
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.forward.target import Patience, Row

pytestmark = pytest.mark.system
KEY = b"0123456789abcdef"


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.pipeline.forward.sinks.webhook.PAUSE_FIRST_S", 0.01)
    monkeypatch.setattr("tidegate.pipeline.forward.sinks.webhook.PAUSE_MOST_S", 0.02)


def file(folder: Path, address: str, more: str = "") -> str:
    (folder / "secret").write_text(f"whsec_{base64.b64encode(KEY).decode()}\n")
    return f"""
        [forward.prices]
        source = {{topic = "prices", options = "conflation=50ms"}}
        sink = {{kind = "webhook", address = "{address}", secret_file = "secret"{more}}}
    """


def test_rows_and_removals_are_posted_in_signed_arrays(tmp_path: Path) -> None:
    with serving_here() as address, Gateway(address) as gateway, receiving() as server:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": 1}, {"k": 2}])
        with forwarding(tmp_path, file(tmp_path, server.address), address):
            eventually(lambda: server.rows[1:], [("snapshot", {"k": 1}), ("snapshot", {"k": 2})])
            gateway.delete_records("prices", record_key=1)
            eventually(lambda: server.rows[3:], [("delete", [1])])
    # By the specification of Standard Webhooks, written anew.
    for each in server.posted:
        name, at = each.headers["webhook-id"], each.headers["webhook-timestamp"]
        digest = hmac.new(KEY, f"{name}.{at}.".encode() + each.body, hashlib.sha256).digest()
        wanted = "v1," + base64.b64encode(digest).decode()
        assert each.headers["webhook-signature"] == wanted
        assert abs(int(at) - time.time()) < 60
        assert each.headers["content-type"] == "application/json"
    assert len({each.headers["webhook-id"] for each in server.posted}) == len(server.posted)


@pytest.mark.usefixtures("fast")
def test_what_was_not_taken_is_posted_again_under_its_id_and_conflated_meanwhile(
    tmp_path: Path,
) -> None:
    answers = [503, 401, 500]

    def answer(rows: list[Any]) -> int:
        if not answers:
            return 200
        return answers.pop(0)

    with serving_here() as address, Gateway(address) as gateway, receiving(answer) as server:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", {"k": 1})
        with forwarding(tmp_path, file(tmp_path, server.address), address) as lines:
            eventually(lambda: server.rows[-1:], [("snapshot", {"k": 1})])
        first = server.posted[:4]
        assert len({each.headers["webhook-id"] for each in first}) == 1
        assert len({each.body for each in first}) == 1
        assert sum("answered 503; trying again" in line for line in lines) == 1


@pytest.mark.usefixtures("fast")
@rule("forward-4")
def test_a_row_that_is_refused_is_a_dead_letter_and_its_neighbors_arrive(tmp_path: Path) -> None:
    def answer(rows: list[Any]) -> int:
        return 422 if any(row.get("value") == {"k": 3} for row in rows) else 200

    with serving_here() as address, Gateway(address) as gateway, receiving(answer) as server:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": k} for k in range(6)])
        with forwarding(tmp_path, file(tmp_path, server.address), address):
            eventually(lambda: len(journal(address, "prices.undelivered")), 1)
            eventually(lambda: server.rows[-1:], [("snapshot", {"k": 5})])
        values = [value for op, value in server.rows if op == "snapshot"]
        assert values == [{"k": k} for k in (0, 1, 2, 4, 5)]
        [letter] = journal(address, "prices.undelivered")
        assert letter["forward"] == "prices"
        assert letter["reason"] == "answered 422"
        assert '"value":{"k":3}' in letter["row"]
        assert letter["bytes"] == len(letter["row"])


@pytest.mark.usefixtures("fast")
def test_after_so_many_attempts_rows_are_dead_letters(tmp_path: Path) -> None:
    with (
        serving_here() as address,
        Gateway(address) as gateway,
        receiving(lambda rows: 503) as server,
    ):
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", {"k": 1})
        with forwarding(tmp_path, file(tmp_path, server.address, ", attempts = 3"), address):
            eventually(lambda: len(journal(address, "prices.undelivered")), 2)
        letters = journal(address, "prices.undelivered")
        assert {each["reason"] for each in letters} == {"answered 503, at 3 attempts"}


@pytest.mark.usefixtures("fast")
@rule("forward-1")
def test_while_a_server_is_away_the_gateway_conflates_and_a_later_run_goes_on(
    tmp_path: Path,
) -> None:
    text = file(tmp_path, "ADDRESS")
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", {"k": 0})
        with receiving() as server:
            with forwarding(tmp_path, text.replace("ADDRESS", server.address), address):
                eventually(lambda: server.rows[1:], [("snapshot", {"k": 0})])
            port = server.address
        away = text.replace("ADDRESS", port)
        with forwarding(tmp_path, away, address) as lines:
            # In one request, so in one flush: the batch that is stuck has the only row.
            gateway.publish("prices", [{"k": 1, "n": n} for n in range(50)])
            eventually(lambda: any("trying again" in line for line in lines), True)
        with receiving(port=int(port.split(":")[2].split("/")[0])) as server:
            with forwarding(tmp_path, away, address):
                eventually(lambda: server.rows[-1:], [("publish", {"k": 1, "n": 49})])
            assert len(server.rows) == 1


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve HTTP as the handler says; yields the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, ThreadPoolExecutor(1) as threads:
        server.daemon_threads = True
        threads.submit(server.serve_forever, 0.01)
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


def test_of_an_answer_without_end_the_beginning_is_read(tmp_path: Path) -> None:
    class Endless(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(500)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"x" * 65536)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Endless) as address:
        text = file(tmp_path, address, ", attempts = 1")
        [definition] = definitions(tmp_path, text, "http://127.0.0.1:8080")
        row = Row("publish", {"value": msgspec.Raw(b"1")})
        with contextlib.closing(definition.sink.target("a", Patience(time.sleep, print))) as target:
            [refused] = target.write([row])
    assert refused.reason == f"answered 500: {'x' * 200}, at 1 attempts"


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("begins", "trickles", "reason"),
    [
        (HEAD + b"X-A: ", 2.0, "no answer in 1 s, at 1 attempts"),
        (HEAD + b"Content-Length: 1000\r\n\r\n", 2.0, ""),
        (HEAD + b"Content-Length: 1000\r\n\r\n", 0.0, ""),
        (b"HTTP/1.1 503 No\r\nContent-Length: 99\r\n\r\n", 0.0, "answered 503: x, at 1 attempts"),
    ],
)
def test_an_answer_that_trickles_or_breaks_holds_nothing_up_and_its_status_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: bytes, trickles: float, reason: str
) -> None:
    class Trickling(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(begins + b"x")
            until = time.monotonic() + trickles
            with contextlib.suppress(OSError):
                while time.monotonic() < until:
                    self.wfile.write(b"x")
                    time.sleep(0.05)
                if trickles:
                    self.wfile.write(b"\r\nContent-Length: 0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr("tidegate.pipeline.forward.sinks.webhook.ANSWER_SECONDS_MAX", 1.0)
    monkeypatch.setattr("tidegate.pipeline.forward.sinks.webhook.TEXT_SECONDS_MAX", 0.2)
    with serving(Trickling) as address:
        text = file(tmp_path, address, ", attempts = 1")
        [definition] = definitions(tmp_path, text, "http://127.0.0.1:8080")
        row = Row("publish", {"value": msgspec.Raw(b"1")})
        with contextlib.closing(definition.sink.target("a", Patience(time.sleep, print))) as target:
            refused = target.write([row])
    assert [each.reason for each in refused] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ('secret_env = "NOT_SET_HERE"', "secret_env: names no secret, or an empty one"),
        ("", "secret_file: expected it, or secret_env"),
        ('secret_file = "none"', "secret_file: cannot be read"),
        (
            'secret_file = "odd"',
            "secret_file: a secret that begins with whsec_ continues in base64",
        ),
        ('secret_env = "A", secret_file = "secret"', "secret_file: expected it, or secret_env"),
    ],
)
def test_a_secret_that_is_none_is_named_and_not_shown(tmp_path: Path, sink: str, said: str) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "odd").write_text("whsec_!")
    text = f"""
        [forward.a]
        source = {{topic = "t"}}
        sink = {{kind = "webhook", address = "http://u:geheim@h/p?token=geheim", {sink}}}
    """.replace(", }", "}")
    with pytest.raises(DefinitionInvalid, match=said) as refused:
        definitions(tmp_path, text, "http://127.0.0.1:8080")
    assert "geheim" not in str(refused.value)


def test_the_place_of_a_webhook_shows_no_password(tmp_path: Path) -> None:
    [found] = definitions(
        tmp_path, file(tmp_path, "https://u:geheim@h:8/p?token=geheim"), "http://h"
    )
    assert found.sink.label.startswith("webhook https://h:8/p query ")
    assert "geheim" not in found.sink.label
    assert KEY.decode() not in repr(found)


def test_a_position_belongs_to_the_query_of_a_webhook_and_not_to_its_password(
    tmp_path: Path,
) -> None:
    def identity(address: str) -> str:
        [found] = definitions(tmp_path, file(tmp_path, address), "http://h")
        return found.identity

    one = identity("https://u:p@h/p?to=a")
    assert one == identity("https://u:q@h/p?to=a")
    assert one != identity("https://u:p@h/p?to=b")
    assert one != identity("https://u:p@h/p")
