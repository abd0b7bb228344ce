"""What a publish request's head says, and what makes two requests the same."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.types import Scope

from tests.support.rules import rule
from tidegate.app.http.publish_request import DIGESTED_AT_ONCE, PublishRequest
from tidegate.app.refusals import Refused
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.store import Producer
from tidegate.app.topics.ingest import BodyForm

JSON = ("Content-Type", "application/json")


class Surviving(MemoryStore):
    """A store that says so."""

    survives_process = True


def scope(*headers: tuple[str, str], query: str = "") -> Scope:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    return {"type": "http", "headers": raw, "query_string": query.encode()}


def read(*headers: tuple[str, str], query: str = "") -> PublishRequest:
    return PublishRequest.read(scope(*headers, query=query), MemoryStore())


def test_a_plain_request_asks_for_nothing_special() -> None:
    assert read(JSON) == PublishRequest("application/json", BodyForm(), None, None, None, None)


def test_each_word_of_the_head_is_heard() -> None:
    asked = read(
        ("Content-Type", "application/x-ndjson"),
        ("Tidegate-Producer", "p"),
        ("Tidegate-Sequence", "7"),
        ("Idempotency-Key", ' "k" '),
        ("Tidegate-Conflate", "never"),
        query="delta=true&ack=processed",
    )
    assert asked.form == BodyForm(lined=True, delta=True, exempt=True)
    assert asked.numbered() == Producer("p", 7)
    assert asked.retry_key == '"k"'


@rule("publish-3")
def test_a_stage_has_its_producer_without_a_number() -> None:
    asked = read(JSON, ("Tidegate-Stage", "s/1"), ("Tidegate-Producer", "p"))
    assert (asked.stage, asked.producer, asked.numbered()) == ("s/1", "p", None)
    for other in (("Tidegate-Sequence", "1"), ("Idempotency-Key", "k")):
        with pytest.raises(Refused):
            read(JSON, ("Tidegate-Stage", "s"), ("Tidegate-Producer", "p"), other)
    with pytest.raises(Refused, match="whole messages"):
        read(JSON, ("Tidegate-Stage", "s"), query="delta=true")


def test_ack_is_what_the_store_can_promise() -> None:
    with pytest.raises(Refused) as refused:
        read(JSON, query="ack=persisted")
    assert refused.value.code == "options-invalid"
    for query in ("", "ack=persisted", "ack=processed"):
        PublishRequest.read(scope(JSON, query=query), Surviving())


NUMBERED = (("Tidegate-Producer", "p"), ("Tidegate-Sequence", "1"))
ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "another body": {"body": b"2"},
    "another type": {"media_type": "application/x-ndjson"},
    "a delta": {"query": "delta=true"},
    "not to be conflated": {"headers": (("Tidegate-Conflate", "never"),)},
    "numbered": {"headers": NUMBERED},
    "of another number": {"headers": (NUMBERED[0], ("Tidegate-Sequence", "2"))},
    "of another producer": {"headers": (("Tidegate-Producer", "q"), NUMBERED[1])},
}


async def digest(
    body: bytes = b"1",
    media_type: str = "application/json",
    query: str = "",
    headers: tuple[tuple[str, str], ...] = (),
) -> bytes:
    head = (("Content-Type", media_type), ("Idempotency-Key", "k"), *headers)
    retry = await read(*head, query=query).retry(body)
    assert retry is not None
    assert retry.name == "k"
    return retry.digest


@rule("publish-1")
async def test_whatever_a_request_asks_of_the_topic_tells_it_from_others() -> None:
    digests = [await digest(**asked) for asked in ASKED.values()]
    assert len(set(digests)) == len(ASKED)
    assert [await digest(**asked) for asked in ASKED.values()] == digests


async def test_how_long_the_answer_waits_makes_no_difference() -> None:
    assert await digest(query="ack=processed") == await digest()


async def test_a_large_body_counts_to_its_end() -> None:
    large = b"1" * (DIGESTED_AT_ONCE + 1)
    assert await digest(large) == await digest(large) != await digest(large[:-1] + b"2")


async def test_without_the_header_there_is_no_retry() -> None:
    assert await read(JSON).retry(b"1") is None


def test_envelopes_are_json_and_whole() -> None:
    lines = ("Content-Type", "application/x-ndjson")
    assert read(lines, query="format=envelope").form == BodyForm(lined=True, enveloped=True)
    assert read(JSON, query="format=envelope").form == BodyForm(enveloped=True)
    assert read(JSON, query="format=value").form == BodyForm()
    for header, query in (
        (JSON, "format=envelopes"),
        (JSON, "format=envelope&delta=true"),
        (("Content-Type", "application/merge-patch+json"), "format=envelope"),
        (("Content-Type", "text/plain"), "format=envelope"),
    ):
        with pytest.raises(Refused) as refused:
            read(header, query=query)
        assert refused.value.code == "options-invalid"


@pytest.mark.parametrize("name", ["a\tb:c", "a b", "x" * 256, ""])
def test_a_name_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(Refused, match="idempotency-key is 1 to 255 of printable ASCII without"):
        read(JSON, ("Idempotency-Key", name))


async def test_an_envelope_is_another_request_than_a_value() -> None:
    key = ("Idempotency-Key", "k")
    plain, enveloped = read(JSON, key), read(JSON, key, query="format=envelope")
    assert await plain.retry(b"{}") != await enveloped.retry(b"{}")
