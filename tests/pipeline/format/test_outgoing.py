"""Rows become lines, or are refused where they are."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.support.rules import rule
from tidegate.pipeline.errors import StreamFailed
from tidegate.pipeline.format.writer import Line, body_of, lines_of


def lines(**columns: list[Any]) -> list[Line]:
    return list(lines_of(pa.RecordBatch.from_pydict(columns)))


def test_values_are_lines_as_they_are() -> None:
    found = lines(value=['{"k": 1.0}', " [1,\n2]\n", "null"])
    assert found == [Line(text, False) for text in (b'{"k": 1.0}', b"[1, 2]", b"null")]
    assert body_of(found) == (b'{"k": 1.0}\n[1, 2]\nnull\n', False)
    assert lines(value=pa.array([b"7"], pa.large_binary())) == [Line(b"7", False)]


def test_a_row_without_value_or_with_a_reason_is_a_removal() -> None:
    found = lines(
        value=[None, '{"k":2}', '{"k":3}'], key=["[1.0]", "[2]", None],
        removed=[None, "match", None],
    )  # fmt: skip
    body, enveloped = body_of(found)
    assert enveloped
    assert [json.loads(line) for line in body.splitlines()] == [
        {"key": [1], "reason": "deleted"},
        {"key": [2], "reason": "match"},
        {"value": {"k": 3}},
    ]


@rule("publish-9")
def test_a_key_beside_a_value_goes_along() -> None:
    """It must be the one that the value says, and the gateway looks."""
    found = lines(value=['{"k": 5}', '{"k":6}'], key=["[5.0]", None])
    body, enveloped = body_of(found)
    assert (body, enveloped) == (b'{"key":[5],"value":{"k": 5}}\n{"value":{"k":6}}\n', True)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": ["{"]}, "no JSON text"),
        ({"value": [""]}, "no JSON text"),
        ({"value": ["1\n2"]}, "no JSON text"),
        ({"value": ['1,"reason":"deleted"']}, "no JSON text"),
        ({"value": ["\ud800".encode("utf-8", "surrogatepass")]}, "no JSON text"),
        ({"value": [None]}, "needs the record's key"),
        ({"value": [None], "key": ["IBM"]}, "key of a row is none"),
        ({"value": [None], "key": ['"IBM"']}, "key of a row is none"),
        ({"value": ["1"], "key": ['[1],"value":2']}, "key of a row is none"),
        ({"value": [None], "key": ["[1]"], "removed": ["gone"]}, "one of deleted"),
    ],
)
def test_what_is_no_message_is_refused(columns: dict[str, list[Any]], said: str) -> None:
    with pytest.raises(StreamFailed, match=said):
        lines(**columns)
