"""Envelopes in a publish request become messages and removals, strictly."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.place import Place, keyed
from tests.support.rules import rule
from tidegate.app.refusals import Refused
from tidegate.app.stores.items import Message, Removal
from tidegate.app.topics.ingest import BodyForm
from tidegate.conflation.frame import RemovalReason

ENVELOPES = BodyForm(lined=True, exempt=True, enveloped=True)


@rule("publish-8")
async def test_envelopes_become_messages_and_removals() -> None:
    place = await keyed()
    body = b'{"value":{"k":1}}\n{"key":[1.0],"reason":"match"}\n{"value":{"k":"a"},"key":["a"]}\n'
    assert await place.ingest.check(place.catalog.get("px"), body, ENVELOPES) == [
        Message(b'{"k":1}', "[1]", exempt=True),
        Removal("[1]", RemovalReason.MATCH),
        Message(b'{"k":"a"}', '["a"]', exempt=True),
    ]


@rule("publish-9")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"value":{"k":1},"key":[2]}', "key-invalid"),
        (b'{"value":{"j":1}}', "key-missing"),
        (b'{"key":[1,2],"reason":"deleted"}', "key-invalid"),
        (b'{"key":[1],"reason":"gone"}', "message-invalid"),
        (b'{"value":{"k":"' + b"x" * 1_024 + b'"}}', "message-too-large"),
        (b'{"key":["' + b"x" * 1_024 + b'"],"reason":"deleted"}', "message-too-large"),
    ],
)
async def test_a_bad_envelope_is_refused_with_its_line(line: bytes, code: str) -> None:
    place = await keyed(message_bytes_max=1_024)
    body = b'{"value":{"k":1}}\n' + line
    with pytest.raises(Refused) as refused:
        await place.ingest.check(place.catalog.get("px"), body, ENVELOPES)
    assert (refused.value.code, refused.value.line) == (code, 2)


@pytest.mark.parametrize("document", [{}, {"key": ["/k"], "retain": False}, {"retain": True}])
async def test_only_records_by_key_can_be_removed(document: dict[str, Any]) -> None:
    place = Place()
    await place.put("px", **document)
    body = b'{"key":[1],"reason":"deleted"}'
    with pytest.raises(Refused, match="keeps no records by key"):
        await place.ingest.check(place.catalog.get("px"), body, ENVELOPES)
