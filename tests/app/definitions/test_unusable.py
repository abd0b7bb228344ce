"""What is known of a topic whose definition cannot be used here."""

from __future__ import annotations

import json

import pytest

from tests.support.place import parsed
from tests.support.rules import rule
from tidegate.app.definitions.topic import TopicDefinition, Unusable


def unusable(text: bytes) -> Unusable:
    return Unusable("px", text, "e1", "No such merger.")


def text(document: TopicDefinition, **other: object) -> bytes:
    return json.dumps({**document.document(), **other}).encode()


@rule("topic-15")
@pytest.mark.parametrize(
    "document",
    [parsed(), parsed(key=["/k"]), parsed(type="text"), parsed(key=["/k"], retain=False)],
)
def test_its_identity_is_read_beside_what_cannot_be(document: TopicDefinition) -> None:
    found = unusable(text(document, merge="no:such", expiration="99999999999999999999w"))
    assert found.identity == document.identity


@rule("topic-15")
def test_its_entity_tag_is_that_of_the_definition_wherever_it_can_be_used() -> None:
    document = parsed(key=["/k"], description="x", expiration="1500ms")
    assert unusable(text(document)).etag == document.etag("e1")
    assert unusable(text(document, merge="no:such")).etag != document.etag("e1")
    assert unusable(b"\xff").etag != unusable(b"\xfe").etag


@pytest.mark.parametrize("garbage", [b"", b"\xff", b"[]", b"1", b"{", b'{"key":7}', b"[" * 100_000])
def test_of_garbage_nothing_is_known_and_nothing_fails(garbage: bytes) -> None:
    found = unusable(garbage)
    assert (found.identity, found.source_topic) == (None, None)
    assert found.etag.startswith('"')


def test_whose_source_it_is_is_known() -> None:
    found = unusable(b'{"source":{"topic":"slow","interval":"soon"}}')
    assert found.source_topic == "slow"
    assert unusable(b'{"source":{"topic":7}}').source_topic is None


def test_its_problem_says_why() -> None:
    problem = unusable(b"{}").refusal()
    assert (problem.code, problem.status) == ("not-ready", 503)
    assert "No such merger." in problem.detail
