"""A topic's JSON Schema: what is taken as one, and what it says of a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.app.definitions.schema import Schema, SchemaViolation
from tidegate.app.definitions.schema_document import DIALECT, SchemaInvalid

ORDER = {
    "type": "object",
    "required": ["k"],
    "properties": {
        "px": {"minimum": 0.3, "multipleOf": 0.1},
        "legs": {"type": "array", "items": {"type": "integer"}},
        "a/b~": {"const": 1},
        "text": {"pattern": "^a+$"},
    },
}

FITS = [
    b'{"k":1}',
    b'{"k":1,"px":0.3,"legs":[1,1.0,1e5,123456789012345678901234567890]}',
    b'{"k":1,"k":2,"px":1e400}',
    b'{"k":1,"px":1e99999999999999999999}',
]


@rule("topic-6")
@pytest.mark.parametrize("payload", FITS)
def test_a_message_that_fits_passes(payload: bytes) -> None:
    Schema.compile(ORDER).check(payload)


BREAKS = [
    (b"7", "type", ""),
    (b"{}", "required", ""),
    (b'{"k":1,"px":0.2}', "minimum", "/px"),
    (b'{"k":1,"px":0.35}', "multipleOf", "/px"),
    (b'{"k":1,"legs":[1,2.5]}', "type", "/legs/1"),
    (b'{"k":1,"a/b~":2}', "const", "/a~1b~0"),
    (b'{"k":1,"text":"b"}', "pattern", "/text"),
    (b'{"k":1,"px":1e-99999999999999999999}', "minimum", "/px"),
]


@pytest.mark.parametrize(("payload", "keyword", "pointer"), BREAKS)
def test_what_does_not_fit_is_refused_with_its_place(
    payload: bytes, keyword: str, pointer: str
) -> None:
    with pytest.raises(SchemaViolation) as broken:
        Schema.compile(ORDER).check(payload)
    assert (broken.value.keyword, broken.value.pointer) == (keyword, pointer)


def test_a_schema_may_be_a_bare_word() -> None:
    Schema.compile(True).check(b"1")
    with pytest.raises(SchemaViolation):
        Schema.compile(False).check(b"1")


NO_SCHEMAS: list[tuple[Any, str]] = [
    (5, ""),
    ([], ""),
    ("x", ""),
    ({"type": "colour"}, "/type"),
    ({"properties": {"a": {"minimum": "1"}}}, "/properties/a/minimum"),
    ({"pattern": "(?=a)"}, "/pattern"),
    ({"$ref": "#/$defs/none"}, ""),
    ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema"),
]


@pytest.mark.parametrize(("document", "pointer"), NO_SCHEMAS, ids=str)
def test_what_is_no_schema_is_refused_where_it_stands(document: object, pointer: str) -> None:
    with pytest.raises(SchemaInvalid) as refused:
        Schema.compile(document)
    assert refused.value.pointer == pointer


@rule("topic-6")
def test_nothing_is_fetched_for_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text("{}", "utf-8")
    for place in (file.as_uri(), "http://127.0.0.1:9/schema", "https://x.invalid/schema"):
        with pytest.raises(SchemaInvalid):
            Schema.compile({"properties": {"a": {"$ref": place}}})


def test_references_inside_a_schema_and_to_its_own_dialect_are_followed() -> None:
    tree = {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}
    Schema.compile(tree).check(b"[[],[[]]]")
    with pytest.raises(SchemaViolation) as broken:
        Schema.compile(tree).check(b"[[],[1]]")
    assert broken.value.pointer == "/1/0"
    Schema.compile({"$schema": DIALECT, "$ref": DIALECT}).check(b'{"type":"string"}')


def test_equal_documents_are_equal_schemas() -> None:
    assert Schema.compile({"minimum": 1}) == Schema.compile({"minimum": 1})
    assert Schema.compile({"minimum": 1}) != Schema.compile({"minimum": 2})
