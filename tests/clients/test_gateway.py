"""Each method against the real gateway, and the trouble there can be."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

from tests.clients.support.streams import plain, scripted
from tests.support.commands import serving_here
from tidegate.clients.aio.gateway import AsyncGateway
from tidegate.clients.errors import AnswerInvalid, GatewayProblem, GatewayUnreachable
from tidegate.clients.gateway import Gateway


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A real gateway in a thread of its own."""
    with serving_here() as address:
        yield address


@pytest.fixture
def gateway(address: str) -> Iterator[Gateway]:
    with Gateway(address) as gateway:
        yield gateway
        for topic in list(gateway.topics()):
            gateway.delete_topic(topic["topic"])


def test_a_topic_is_created_shown_listed_and_deleted(gateway: Gateway) -> None:
    assert gateway.put_topic("a", {"key": ["/id"]})
    assert not gateway.put_topic("a", {"key": ["/id"]})
    assert gateway.topic("a")["key"] == ["/id"]
    gateway.put_topic("b.1", {})
    assert [topic["topic"] for topic in gateway.topics()] == ["a", "b.1"]
    assert [topic["topic"] for topic in gateway.topics("b.")] == ["b.1"]
    gateway.delete_topic("a")
    with pytest.raises(GatewayProblem) as raised:
        gateway.topic("a")
    assert raised.value.code == "topic-unknown"


def test_a_list_of_many_pages(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.clients.requests.TOPICS_PER_PAGE", 2)
    for number in range(5):
        gateway.put_topic(f"n{number}", {})
    names = [topic["topic"] for topic in gateway.topics("n")]
    assert names == [f"n{number}" for number in range(5)]


def test_messages_go_in_and_come_out(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    lines = [b'{"id":%d,"n":%d}' % (number % 2, number) for number in range(5)]
    published = gateway.publish("t", lines)
    assert (published.topic, published.messages, published.duplicate) == ("t", 5, False)
    assert sorted(gateway.sow("t")) == sorted(lines[-2:])
    envelopes = [json.loads(line) for line in gateway.messages("t", limit=3)]
    assert [envelope["value"]["n"] for envelope in envelopes] == [0, 1, 2]
    rest = gateway.messages("t", from_=envelopes[-1]["bookmark"])
    assert [json.loads(line)["value"]["n"] for line in rest] == [3, 4]
    assert published.last is not None
    assert list(gateway.messages("t", from_=published.last)) == []


async def test_the_whole_journal_is_read_in_pages(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.clients.requests.MESSAGES_PER_PAGE", 2)
    published = gateway.publish("log", [b"%d" % number for number in range(5)])
    places = ((None, [0, 1, 2, 3, 4]), (published.first, [1, 2, 3, 4]), ("2000-01-01", range(5)))
    for from_, expected in places:
        found = [json.loads(line)["value"] for line in gateway.messages("log", from_)]
        async with AsyncGateway(gateway.base_url) as other:
            lines = [line async for line in other.messages("log", from_)]
        assert found == [json.loads(line)["value"] for line in lines] == list(expected)


async def test_a_delta_changes_the_fields_that_it_names(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    gateway.publish("t", {"id": 1, "n": 1, "gone": 1, "stays": True})
    gateway.publish("t", {"id": 1, "n": 2}, delta=True)
    async with AsyncGateway(gateway.base_url) as other:
        await other.publish("t", {"id": 1, "gone": None}, delta=True)
    assert [json.loads(value) for value in gateway.sow("t")] == [{"id": 1, "n": 2, "stays": True}]


async def test_the_newest_messages_are_read(gateway: Gateway) -> None:
    gateway.publish("log", [b"%d" % number for number in range(5)])
    assert [json.loads(line)["value"] for line in gateway.messages("log", last=2)] == [3, 4]
    async with AsyncGateway(gateway.base_url) as other:
        lines = [line async for line in other.messages("log", last=2)]
    assert [json.loads(line)["value"] for line in lines] == [3, 4]
    with pytest.raises(GatewayProblem, match="Give last, or from and limit, not both"):
        list(gateway.messages("log", "epoch", last=2))


def both(gateway: Gateway, topic: str, **which: Any) -> Iterator[int]:
    """What each client says that it has deleted, after the same messages."""

    async def delete() -> int:
        async with AsyncGateway(gateway.base_url) as other:
            return await other.delete_records(topic, **which)

    for is_async in (False, True):
        gateway.put_topic(topic, {"key": ["/s", "/n"]})
        gateway.publish(topic, [b'{"s":"a b&","n":%d}' % n for n in (1, 2, 9007199254740993)])
        yield asyncio.run(delete()) if is_async else gateway.delete_records(topic, **which)


def test_a_record_is_deleted_by_its_key(gateway: Gateway) -> None:
    for count in both(gateway, "t", record_key=("a b&", 9007199254740993)):
        assert count == 1
        assert sorted(gateway.sow("t")) == [b'{"s":"a b&","n":1}', b'{"s":"a b&","n":2}']
    assert gateway.delete_records("t", record_key=("a b&", 3)) == 0


def test_a_key_of_one_field_is_that_field(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    gateway.publish("t", [b'{"id":1}', b'{"id":"1"}', b'{"id":true}', b'{"id":false}'])
    assert gateway.delete_records("t", record_key="1") == 1
    assert gateway.delete_records("t", record_key=True) == 1
    assert gateway.delete_records("t", record_key=(False,)) == 1
    assert list(gateway.sow("t")) == [b'{"id":1}']
    of_numpy: Any = numpy.int64(1)
    assert gateway.delete_records("t", record_key=of_numpy) == 1


def test_records_that_match_are_deleted(gateway: Gateway) -> None:
    for count in both(gateway, "t", filter="/n < 3"):
        assert count == 2
        assert list(gateway.sow("t")) == [b'{"s":"a b&","n":9007199254740993}']


def test_what_says_not_what_to_delete_deletes_nothing(gateway: Gateway) -> None:
    for wrong in (
        {},
        {"record_key": "a"},
        {"filter": "/n <"},
        {"record_key": ("a", 1), "filter": "1"},
    ):
        with pytest.raises(GatewayProblem):
            next(both(gateway, "t", **wrong))
    assert len(list(gateway.sow("t"))) == 3


def test_an_answer_that_counts_nothing_is_no_gateway() -> None:
    with (
        scripted(plain(200, b'{"ok":true}')) as fake,
        Gateway(fake.address) as gateway,
        pytest.raises(AnswerInvalid, match="did not answer"),
    ):
        gateway.delete_records("t", record_key=1)
    assert len(fake.requests) == 1


def test_a_numbered_batch_is_published_once(gateway: Gateway) -> None:
    assert not gateway.publish("t", [b"1"], producer="p", sequence=1).duplicate
    again = gateway.publish("t", [b"1"], producer="p", sequence=1)
    assert (again.duplicate, again.messages) == (True, 0)


def test_a_bad_line_is_named(gateway: Gateway) -> None:
    with pytest.raises(GatewayProblem, match="line 2") as raised:
        gateway.publish("t", [b"1", b"{"])
    assert raised.value.line == 2


def test_a_subscription_brings_the_snapshot_and_what_follows(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    gateway.publish("t", [b'{"id":1}'])
    with gateway.subscribe("t", format="batch", for_s=60) as events:
        rows = (json.loads(event.text)["rows"] for event in events if event.name == "message")
        assert [row["op"] for row in next(rows)] == ["snapshot"]
        gateway.publish("t", [b'{"id":2}'])
        assert [row["key"] for row in next(rows)] == [[2]]


def test_what_subscribing_would_do(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    explained = gateway.explain("t", options="conflation=1s", filter="/a=1", command=None)
    assert explained["options"] == "conflation=1s,conflation_key=[/id],pace=batch"
    assert (explained["command"], explained["filter"]) == ("sow_and_subscribe", "/a = 1")


def test_a_name_with_a_slash_stays_one_name(gateway: Gateway) -> None:
    with pytest.raises(GatewayProblem) as raised:
        gateway.topic("a/b?c")
    assert raised.value.status in (400, 404)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8080", "ftp://a", "http://", "http://a/path", "http://a:x", "http://a?b"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="expected an address such as"):
        Gateway(address)


def test_an_unreachable_gateway_is_named_by_its_address() -> None:
    with Gateway("http://127.0.0.1:1") as gateway:
        for call in (lambda: gateway.topic("t"), lambda: list(gateway.sow("t"))):
            with pytest.raises(GatewayUnreachable, match=re.escape("http://127.0.0.1:1")):
                call()


def test_pages_of_another_server_are_no_records() -> None:
    page = plain(200, b"<html>\n<p>Hello\n</html>", "text/html")
    with scripted(page) as fake, Gateway(fake.address) as gateway:
        for call in (
            lambda: list(gateway.sow("t")),
            lambda: list(gateway.messages("t")),
            lambda: gateway.put_topic("t", {}),
            lambda: gateway.delete_topic("t"),
        ):
            with pytest.raises(AnswerInvalid, match="Tidegate gateway"):
                call()


def test_records_as_json_are_taken_too() -> None:
    record = plain(200, b"[1]", "application/json")
    with scripted(record) as fake, Gateway(fake.address) as gateway:
        assert list(gateway.sow("t")) == [b"[1]"]
