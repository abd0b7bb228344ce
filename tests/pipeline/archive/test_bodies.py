"""Recorded messages as topics of each type take them."""

from __future__ import annotations

import pytest

from tidegate.pipeline.archive.recorded import Recorded, RecordedPlace, Spot
from tidegate.pipeline.archive.replaying import (
    MESSAGES_PER_REQUEST,
    body_of,
    media_type_of,
    messages_max_of,
)
from tidegate.pipeline.errors import HistoryInvalid


def recorded(
    value: bytes | None, key_text: str | None = None, reason: str | None = None
) -> Recorded:
    return Recorded(Spot("a.ndjson", "line", 7), RecordedPlace("", 1), 0, key_text, value, reason)


def test_topics_of_json_take_envelopes_removals_too() -> None:
    messages = [recorded(b'{\n"a":"b"}'), recorded(None, '["a"]', "expired")]
    for kind in ("json", "series"):
        assert body_of(kind, messages) == (
            b'{"value":{ "a":"b"}}\n{"key":["a"],"reason":"expired"}\n'
        )
        assert media_type_of(kind) == "application/x-ndjson"
        assert messages_max_of(kind) == MESSAGES_PER_REQUEST


@pytest.mark.parametrize(
    ("kind", "value", "body", "media_type"),
    [
        ("text", b'"a\\n\\u00e9"', b"a\n\xc3\xa9", "text/plain"),
        ("text", b'""', b"", "text/plain"),
        ("binary", b'"AAH/"', b"\x00\x01\xff", "application/octet-stream"),
    ],
)
def test_texts_and_bytes_go_as_they_are_one_by_one(
    kind: str, value: bytes, body: bytes, media_type: str
) -> None:
    assert body_of(kind, [recorded(value)]) == body
    assert (media_type_of(kind), messages_max_of(kind)) == (media_type, 1)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("text", b'{"a":1}', "a.ndjson, line 7: a topic of type text takes strings"),
        ("binary", b"7", "a.ndjson, line 7: a topic of type binary takes strings"),
        ("binary", b'"no base64"', "a.ndjson, line 7: a topic of type binary takes base64"),
    ],
)
def test_what_is_no_text_is_told_with_its_place(kind: str, value: bytes, said: str) -> None:
    with pytest.raises(HistoryInvalid, match=f"{said}, and this is none"):
        body_of(kind, [recorded(value)])
