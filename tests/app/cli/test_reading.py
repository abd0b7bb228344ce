"""Subscribing, the state of the world and explanations from the command line."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tests.clients.support.streams import plain, scripted, stream
from tests.support.commands import call, start
from tests.support.deadlines import HANGS_S, LOOPS_S
from tidegate.app.cli.main import main
from tidegate.app.cli.reading import _estimate
from tidegate.clients.gateway import Gateway

HELLO = b'event: hello\ndata: {"heartbeat_ms":20000,"subscriptions":[{"options":""}]}\n\n'
MESSAGE = b"event: message\nid: 1\ndata: %s\n\n"
TOPIC_UNKNOWN = b'{"title":"There is no such topic","status":404,"code":"topic-unknown"}'


@pytest.fixture
def prices(gateway: Gateway) -> Gateway:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    gateway.publish("prices", [b'{"symbol":"A"}', b'{"symbol":"B"}', b'{"symbol":"C"}'])
    return gateway


def subscribe(gateway: Gateway, *arguments: str) -> list[str]:
    ended = call("subscribe", "prices", *arguments, "--gateway", gateway.base_url)
    assert (ended.code, ended.err) == (0, "")
    return ended.out.splitlines()


def test_so_many_messages(prices: Gateway) -> None:
    assert subscribe(prices, "--count", "2") == ['{"symbol":"A"}', '{"symbol":"B"}']


@pytest.mark.system
def test_for_so_long(prices: Gateway) -> None:
    started_at = time.monotonic()
    assert len(subscribe(prices, "--for", "1s")) == 3
    assert time.monotonic() - started_at >= 1


def test_the_journal_is_printed_from_a_place_or_from_its_end(prices: Gateway) -> None:
    def printed(*arguments: str) -> list[str]:
        ended = call("messages", "prices", *arguments, "--gateway", prices.base_url)
        assert (ended.code, ended.err) == (0, "")
        return [json.loads(line)["key"][0] for line in ended.out.splitlines()]

    assert printed() == ["A", "B", "C"]
    assert printed("--last", "2") == ["B", "C"]
    assert printed("--from", "2000-01-01", "--limit", "1") == ["A"]
    ended = call("messages", "prices", "--from", "-2h", "--gateway", prices.base_url)
    assert ended.code == 1
    assert "bookmark-invalid" in ended.err


def test_a_sow_ends_by_itself(prices: Gateway) -> None:
    rows = [json.loads(line) for line in subscribe(prices, "--command", "sow", "--format", "batch")]
    assert [row["key"] for batch in rows for row in batch["rows"]] == [["A"], ["B"], ["C"]]


def test_options_reach_the_gateway_and_a_wrong_one_is_1(prices: Gateway) -> None:
    ended = call("subscribe", "prices", "--options", "conflation=x", "--gateway", prices.base_url)
    assert ended.code == 1
    assert "[options-invalid, topic prices, position 11]" in ended.err
    ended = call("subscribe", "prices", "--filter", "/a = ", "--gateway", prices.base_url)
    assert ended.code == 1
    assert "[filter-invalid, topic prices, position 5]" in ended.err
    assert ended.err.count("\n") == 1, "a caret is for terminals"


def test_what_is_asked_for_is_what_comes(prices: Gateway) -> None:
    prices.publish("prices", [b'{"symbol":"B","v":2}', b'{"symbol":"C","v":1}'])
    wanted = ("--filter", "/v > 0", "--order-by", "/v DESC", "--command", "sow")
    lines = subscribe(prices, *wanted, "--options", "select=[-/v]")
    assert lines == ['{"symbol":"B"}', '{"symbol":"C"}']


def test_deltas_come_in_envelopes(prices: Gateway) -> None:
    rows = [
        json.loads(line)
        for line in subscribe(prices, "--command", "sow_and_delta_subscribe", "--count", "3")
    ]
    assert [(row["op"], row["key"]) for row in rows] == [
        ("snapshot", ["A"]), ("snapshot", ["B"]), ("snapshot", ["C"])
    ]  # fmt: skip


def test_a_pattern_of_topics(prices: Gateway) -> None:
    prices.put_topic("pence", {"key": ["/symbol"]})
    prices.publish("pence", [b'{"symbol":"A"}'])
    ended = call("subscribe", "*", "--command", "sow", "--gateway", prices.base_url)
    assert (ended.code, ended.err) == (0, "")
    topics = [json.loads(line)["topic"] for line in ended.out.splitlines()]
    assert sorted(topics) == ["pence", "prices"]


def test_a_table_into_a_pipe_is_drawn_at_the_end(prices: Gateway) -> None:
    drawn = "\n".join(subscribe(prices, "--table", "--command", "sow"))
    assert "prices" in drawn
    assert "3 updates" in drawn


@pytest.mark.system
def test_each_message_is_there_at_once(prices: Gateway) -> None:
    process = start("subscribe", "prices", "--command", "subscribe", "--gateway", prices.base_url)
    assert process.stdout is not None
    await_subscription(prices)
    for number in range(3):
        prices.publish("prices", [b'{"symbol":"D","n":%d}' % number])
        assert json.loads(process.stdout.readline())["n"] == number
    process.terminate()
    process.communicate(timeout=HANGS_S)


@contextlib.contextmanager
def cut_off(head: bytes) -> Iterator[str]:
    """The address of a server that answers one request with a stream that ends, and is gone."""
    with socket.socket() as place, socket.socket() as listener:
        for each in (place, listener):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place.bind(("127.0.0.1", 0))  # does not listen, and keeps the port from others
        listener.bind(place.getsockname())
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                listener.close()
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Connection: close\r\n\r\n" + head
                )

        with ThreadPoolExecutor(1) as threads:
            threads.submit(answer)
            yield f"http://127.0.0.1:{place.getsockname()[1]}"


def test_a_gateway_that_stays_away_is_reported_once_and_the_time_ends_with_3(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []

    def now() -> float:
        return 6.0 if any(note.startswith("Cannot reach") for note in notes) else 0.0

    clock = SimpleNamespace(monotonic=now)
    monkeypatch.setattr("tidegate.clients.subscription.time", clock)
    monkeypatch.setattr("tidegate.app.cli.reading.print_note", notes.append)
    with cut_off(HELLO) as address:
        ended = call("subscribe", "t", "--for", "6s", "--gateway", address)
    assert (ended.code, ended.out) == (3, "")
    lost, away = notes
    assert lost.startswith("the stream ")
    assert away.startswith("Cannot reach ")
    assert ended.err == (
        "tidegate: the time given with --for ended while the gateway was unreachable\n"
    )


def notice(name: str, **fields: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(fields)}\n\n".encode()


@pytest.mark.parametrize(
    ("event", "code", "said"),
    [
        (
            notice("resumed", topic="t", gap_messages=3, not_found="now"),
            0,
            "t: up to 3 messages are missing for good; a snapshot follows",
        ),
        (
            notice("unsubscribed", topic="t", reason="BOOKMARK_EXPIRED"),
            1,
            "tidegate: The journal does not go on from there [bookmark-expired, topic t]",
        ),
    ],
)
def test_messages_that_are_missing_are_said_on_standard_error(
    event: bytes, code: int, said: str
) -> None:
    end = notice("goodbye", reason="UNSUBSCRIBED", reconnect=False)
    with scripted(stream(HELLO, event, end)) as fake:
        ended = call("subscribe", "t", "--gateway", fake.address)
    assert (ended.code, ended.err.count("\n")) == (code, 1)
    assert ended.err.startswith(said)


def test_a_session_that_was_closed_is_said_on_standard_error() -> None:
    closed = notice("goodbye", reason="CLOSED_BY_ADMIN", reconnect=False)
    with scripted(stream(HELLO, closed)) as fake:
        ended = call("subscribe", "t", "--gateway", fake.address)
    assert (ended.code, ended.err) == (0, "The gateway has ended the stream: CLOSED_BY_ADMIN\n")


def test_a_refusal_for_lack_of_room_is_named() -> None:
    refused = notice("refused", title="A limit is reached", status=429, code="limit-reached")
    with scripted(stream(HELLO, MESSAGE % b"1"), stream(b"retry: 1\n" + refused)) as fake:
        ended = call("subscribe", "t", "--for", "2s", "--gateway", fake.address)
    assert (ended.code, ended.out) == (1, "1\n")
    assert ended.err.splitlines()[-1] == "tidegate: A limit is reached [limit-reached]"


@pytest.mark.parametrize("arguments", [(), ("--table",)], ids=["lines", "table"])
def test_a_topic_that_is_missing_when_the_time_ends_is_1(
    arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    missing = plain(404, TOPIC_UNKNOWN, "application/problem+json")
    with scripted(stream(HELLO), missing) as fake:
        words = ["subscribe", "t", *arguments, "--for", "1s", "--gateway", fake.address]
        assert main(words) == 1
        assert len(fake.requests) > 2
    complaint = capfd.readouterr().err.splitlines()[-1]
    assert complaint == "tidegate: There is no such topic [topic-unknown, topic t]"


def test_it_comes_back_when_the_gateway_does() -> None:
    with scripted(stream(HELLO, MESSAGE % b"1"), stream(HELLO, MESSAGE % b"2")) as fake:
        ended = call("subscribe", "t", "--count", "2", "--gateway", fake.address)
    assert (ended.code, ended.out) == (0, "1\n2\n")
    lost, back = ended.err.splitlines()
    assert lost.startswith("the stream ")
    assert back == "Reconnected"
    assert [last_id for last_id, _ in fake.requests] == [None, "1"]


def test_why_a_gateway_left_and_which_one_follows_is_said() -> None:
    goodbye = b'event: goodbye\nretry: 1\ndata: {"reason":"SHUTDOWN","reconnect":true}\n\n'
    scripts = (
        stream(HELLO, MESSAGE % b"1", goodbye, gateway="g1"),
        stream(HELLO, MESSAGE % b"2", gateway="g2"),
    )
    with scripted(*scripts) as fake:
        ended = call("subscribe", "t", "--count", "2", "--gateway", fake.address)
    assert (ended.code, ended.out) == (0, "1\n2\n")
    assert ended.err.splitlines() == [
        "the stream of gateway g1 ended: SHUTDOWN",
        "Reconnected to gateway g2",
    ]


def await_subscription(gateway: Gateway, topic: str = "prices") -> None:
    give_up_at = time.monotonic() + LOOPS_S
    while gateway.topic(topic)["subscriptions"] < 1:
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def test_records_as_published_or_in_envelopes(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    gateway.publish("t", [b'{"id":1,"v":1.50}', b'{"id":2}', b'{"id":1,"v":2.50}'])
    ended = call("sow", "t", "--gateway", gateway.base_url)
    assert (ended.code, ended.err) == (0, "")
    assert sorted(ended.out.splitlines()) == ['{"id":1,"v":2.50}', '{"id":2}']
    ended = call("sow", "t", "--format", "envelope", "--gateway", gateway.base_url)
    keys = [json.loads(line)["key"] for line in ended.out.splitlines()]
    assert sorted(keys) == [[1], [2]]


def test_a_query(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    gateway.publish("t", [b'{"id":%d,"v":1}' % n for n in range(9)])
    wanted = ("--filter", "/id > 2", "--order-by", "/id DESC", "--top-n", "2", "--skip-n", "1")
    ended = call("sow", "t", *wanted, "--select", "[-/,+/id]", "--gateway", gateway.base_url)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == ['{"id":7}', '{"id":6}']


def test_a_wrong_query_is_1(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    ended = call("sow", "t", "--filter", "/id =", "--gateway", gateway.base_url)
    assert ended.code == 1
    assert "[filter-invalid, topic t, position 5]" in ended.err


def test_a_server_that_is_no_gateway_is_3_in_one_line() -> None:
    with scripted(plain(200, b"<html>\n", "text/html")) as other:
        ended = call("sow", "t", "--gateway", other.address)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("tidegate: ")
    assert ended.err.endswith("it is not a Tidegate gateway\n")
    assert ended.err.count("\n") == 1


def test_lines_for_people(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    arguments = ("--options", "conflation=1s,live", "--filter", "/v>1", "--order-by", "/v desc")
    ended = call("explain", "t", *arguments, "--gateway", gateway.base_url)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "command    sow_and_subscribe",
        "options    conflation=1s,conflation_key=[/id],pace=batch",
        "filter     /v > 1",
        "order_by   /v DESC",
        "by default command=sow_and_subscribe,conflation_key=[/id],pace=batch",
        "lane       conflation=1s,conflation_key=[/id],pace=batch&filter=/v > 1 (now 0 on it)",
        "resume     changes",
        "estimate   none: the journal holds no messages",
        "warning    a message is delivered once it is stored, so live changes nothing",
    ]


def test_what_was_published_is_reckoned(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    gateway.publish("t", [b'{"id":1}', b'{"id":2}', b'{"id":1}'])
    ended = call("explain", "t", "--options", "conflation=1h", "--gateway", gateway.base_url)
    estimate = next(line for line in ended.out.splitlines() if line.startswith("estimate"))
    assert estimate == (
        "estimate   0.001 messages and 0.004 bytes a second, "
        "if the last 3 messages were published again"
    )


@pytest.mark.parametrize(
    ("rate", "text"),
    [(7961.783, "7,962"), (10.4, "10"), (9.96, "10"), (5.234, "5.2"), (0.001, "0.001"), (0, "0")],
)
def test_an_estimate_is_rounded(rate: float, text: str) -> None:
    figures = {"messages_per_s": rate, "bytes_per_s": 2 * 7961.783, "journalled": 1_000}
    assert _estimate({"estimates": figures}) == (
        f"{text} messages and 15,924 bytes a second, "
        "if the last 1,000 messages were published again"
    )


def test_a_sow_has_no_lane(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    ended = call("explain", "t", "--command", "sow", "--gateway", gateway.base_url)
    assert ended.out.splitlines() == [
        "command    sow",
        "options    conflation=none",
        "by default conflation=none",
        "estimate   none: a sow is sent once",
    ]


def test_json_is_the_gateway_s_answer(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    ended = call("explain", "t", "--json", "--gateway", gateway.base_url)
    assert json.loads(ended.out) == gateway.explain("t")


def test_a_refusal_is_1_with_its_place(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    ended = call("explain", "t", "--options", "oof,speed=9", "--gateway", gateway.base_url)
    assert (ended.code, ended.out) == (1, "")
    assert "unknown option" in ended.err
    assert ended.err.count("\n") == 1
