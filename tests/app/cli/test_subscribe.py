"""Subscribing into a pipe: NDJSON, and an end when it was asked for."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from tests.clients.support.streams import plain, scripted, stream
from tests.support.commands import address_of, run, start
from tests.support.deadlines import HANGS_S, LOOPS_S
from tests.support.ports import lasting_port
from tidegate.app.cli.main import main
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.slow
HELLO = b'event: hello\ndata: {"heartbeat_ms":20000,"subscriptions":[{"options":""}]}\n\n'
TOPIC_UNKNOWN = b'{"title":"There is no such topic","status":404,"code":"topic-unknown"}'


@pytest.fixture
def prices(gateway: Gateway) -> Gateway:
    gateway.put_topic("prices", {"key": ["/symbol"]})
    gateway.publish("prices", [b'{"symbol":"A"}', b'{"symbol":"B"}', b'{"symbol":"C"}'])
    return gateway


def subscribe(gateway: Gateway, *arguments: str) -> list[str]:
    ended = run("subscribe", "prices", *arguments, "--gateway", gateway.base_url)
    assert (ended.code, ended.err) == (0, "")
    return ended.out.splitlines()


def test_so_many_messages(prices: Gateway) -> None:
    assert subscribe(prices, "--count", "2") == ['{"symbol":"A"}', '{"symbol":"B"}']


def test_for_so_long(prices: Gateway) -> None:
    started_at = time.monotonic()
    assert len(subscribe(prices, "--for", "2s")) == 3
    assert time.monotonic() - started_at >= 2


def test_a_sow_ends_by_itself(prices: Gateway) -> None:
    rows = [json.loads(line) for line in subscribe(prices, "--command", "sow", "--format", "batch")]
    assert [row["key"] for batch in rows for row in batch["rows"]] == [["A"], ["B"], ["C"]]


def test_options_reach_the_gateway_and_a_wrong_one_is_1(prices: Gateway) -> None:
    ended = run("subscribe", "prices", "--options", "conflation=x", "--gateway", prices.base_url)
    assert ended.code == 1
    assert "[options-invalid, position 11]" in ended.err
    ended = run("subscribe", "prices", "--filter", "/a = ", "--gateway", prices.base_url)
    assert ended.code == 1
    assert "[filter-invalid, position 5]" in ended.err
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
    ended = run("subscribe", "*", "--command", "sow", "--gateway", prices.base_url)
    assert (ended.code, ended.err) == (0, "")
    topics = [json.loads(line)["topic"] for line in ended.out.splitlines()]
    assert sorted(topics) == ["pence", "prices"]


def test_a_table_into_a_pipe_is_drawn_at_the_end(prices: Gateway) -> None:
    drawn = "\n".join(subscribe(prices, "--table", "--command", "sow"))
    assert "prices" in drawn
    assert "3 updates" in drawn


def test_each_message_is_there_at_once(prices: Gateway) -> None:
    process = start("subscribe", "prices", "--command", "subscribe", "--gateway", prices.base_url)
    assert process.stdout is not None
    await_subscription(prices)
    for number in range(3):
        prices.publish("prices", [b'{"symbol":"D","n":%d}' % number])
        assert json.loads(process.stdout.readline())["n"] == number
    process.terminate()
    process.communicate(timeout=HANGS_S)


def test_a_gateway_that_stays_away_is_told_once_and_the_time_ends_with_3() -> None:
    served = start("serve", "--port", "0")
    address = address_of(served)
    with Gateway(address) as gateway:
        gateway.put_topic("t", {})
        follower = start("subscribe", "t", "--for", "6s", "--gateway", address)
        await_subscription(gateway, "t")
    served.kill()
    served.communicate(timeout=HANGS_S)
    out, err = follower.communicate(timeout=HANGS_S)
    assert (follower.returncode, out) == (3, "")
    lost, away, ended = err.splitlines()
    assert lost.startswith("the stream ")
    assert away.startswith("Cannot reach ")
    assert ended == "tidegate: the time was over before the gateway was back"


@pytest.mark.parametrize("arguments", [(), ("--table",)], ids=["lines", "table"])
def test_a_topic_that_stays_missing_is_1_in_one_line(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidegate.clients.outage.MISSING_SECONDS_MAX", 0.5)
    missing = plain(404, TOPIC_UNKNOWN, "application/problem+json")
    with scripted(stream(HELLO), missing) as fake:
        assert main(["subscribe", "t", *arguments, "--gateway", fake.address]) == 1
    complaints = [line for line in capfd.readouterr().err.splitlines() if "no such topic" in line]
    assert complaints == ["tidegate: There is no such topic [topic-unknown]"]


def test_it_comes_back_when_the_gateway_does() -> None:
    port = str(lasting_port())
    first = start("serve", "--port", port)
    address = address_of(first)
    follower = publish_and_follow(address, b"1")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "1\n"
    first.terminate()
    first.communicate(timeout=HANGS_S)
    assert follower.stderr is not None
    assert follower.stderr.readline().startswith("the stream ")
    second = start("serve", "--port", port)
    assert address_of(second) == address
    with Gateway(address) as gateway:
        gateway.put_topic("t", {"key": ["/n"]})
        gateway.publish("t", [b'{"n":2}'])
    assert follower.stdout.readline() == '{"n":2}\n'
    for process in (follower, second):
        process.terminate()
    assert follower.communicate(timeout=HANGS_S)[1].splitlines()[-1] == "Connected again"
    second.communicate(timeout=HANGS_S)


def publish_and_follow(address: str, text: bytes) -> subprocess.Popen[str]:
    with Gateway(address) as gateway:
        gateway.put_topic("t", {})
        follower = start("subscribe", "t", "--gateway", address)
        await_subscription(gateway, "t")
        gateway.publish("t", [text])
    return follower


def await_subscription(gateway: Gateway, topic: str = "prices") -> None:
    give_up_at = time.monotonic() + LOOPS_S
    while gateway.topic(topic)["subscriptions"] < 1:
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
