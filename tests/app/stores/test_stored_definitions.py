"""What is stored of a definition is read again as the same one, or is not accepted.

Rule topic-13 is told here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.place import parsed
from tests.support.rules import rule
from tests.support.servers import edge_settings
from tidegate.app.definitions.fields import History
from tidegate.app.definitions.mergers import NO_MERGERS
from tidegate.app.definitions.topic import TopicDefinition, Unusable
from tidegate.app.refusals import Refused
from tidegate.app.stores.store import TopicRecord, check_readable, encode_definition, parse_stored
from tidegate.keys.merging import Merger
from tidegate.keys.text.duration import DURATION_MAX

pytestmark = rule("topic-13")


@pytest.mark.parametrize(
    "document",
    [
        parsed(),
        parsed(key=["/k", "/a/b"], merge={"/qty": "sum", "/px": "max@hi"}, match=["/k"]),
        parsed(key=["/k"], expiration="36500d", history={"age": "36500d", "bytes": "1GiB"}),
        parsed(key=["/k"], schema={"properties": {"k": {"type": "integer"}}}),
        parsed(key=["/k"], source={"topic": "s", "interval": "1s", "filter": "/a IN (1, 'b')"}),
        parsed(type="series", options="live"),
    ],
)
def test_what_parses_is_read_again(document: TopicDefinition) -> None:
    check_readable(document, NO_MERGERS, edge_settings())
    read = parse_stored("px", encode_definition(document), "e1", NO_MERGERS)
    assert read == TopicRecord("px", document, "e1")


@pytest.mark.parametrize(
    "document",
    [
        parsed(key=["/k"]).model_copy(update={"expiration_ns": DURATION_MAX + 1}),
        parsed(key=["/k"]).model_copy(
            update={"merge": Merger("no:such", lambda current, new: new)}
        ),
        parsed(key=["/k"]).model_copy(update={"retain": True}),
        parsed().model_copy(update={"history": History.model_construct({"age"}, age="9e9d")}),
    ],
)
def test_what_would_not_be_is_refused(document: TopicDefinition) -> None:
    with pytest.raises(Refused, match="topic-invalid"):
        check_readable(document, NO_MERGERS, edge_settings())


@pytest.mark.parametrize("garbage", [b"", b"\xff", b"[]", b"{", b'{"key":7}', b"[" * 100_000])
def test_garbage_is_unusable_with_a_reason(garbage: bytes) -> None:
    read = parse_stored("px", garbage, "e1", NO_MERGERS)
    assert isinstance(read, Unusable)
    assert read.reason.endswith(".")


STORED = Path(__file__).with_name("stored_definitions.ndjson").read_bytes().splitlines()
"""Texts that gateways have stored since definitions had their present fields: never edit them."""
TAGS = (
    "6e0e0fa1754c1565", "937da55e442e9bff", "1cd10409ed6b6420",
    "605558eb5818f7b7", "88eed5377d3fed19", "92f8eda26d060859",
)  # fmt: skip


@pytest.mark.parametrize(("text", "tag"), [*zip(STORED, TAGS, strict=True)])
def test_what_was_stored_before_is_the_same_topic_with_the_same_tag(text: bytes, tag: str) -> None:
    read = parse_stored("px", text, "e1", NO_MERGERS)
    assert isinstance(read, TopicRecord)
    assert encode_definition(read.document) == text
    assert read.document.etag("e1") == f'"{tag}"'
