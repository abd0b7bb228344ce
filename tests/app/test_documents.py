"""Bodies as models: strict JSON in, a checked object or a problem with its place out."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import pytest
from pydantic import AfterValidator, ConfigDict, Field

from tidegate.app.documents import Strict, invalid, nullable, read
from tidegate.app.refusals import Refused
from tidegate.keys.errors import PathInvalid
from tidegate.keys.jsontext import DEPTH_MAX


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("is even")
    return number


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise PathInvalid("a path starts with /", 0)
    return text


def _filter(text: str) -> str:
    if text == "bad":
        raise invalid("filter-invalid", "Not a filter.", "/inside", position=3)
    return text


class Inner(Strict):
    """A document in another one."""

    code = "topic-invalid"

    path: Annotated[str, Field(max_length=5), AfterValidator(_path)] = "/"


class Outer(Strict):
    """A document."""

    code = "topic-invalid"
    codes: ClassVar = {"filter": "filter-invalid"}

    number: Annotated[int, Field(ge=0), AfterValidator(_even)]
    flag: bool = False
    filter: Annotated[str, AfterValidator(_filter)] = ""
    inner: Inner | None = None
    many: Annotated[list[Inner], Field(default_factory=list)]
    any_: Annotated[Any, Field(alias="any")] = None


def refused(body: bytes) -> Refused:
    with pytest.raises(Refused) as raised:
        read(Outer, body)
    return raised.value


def test_a_document_is_read() -> None:
    found = read(Outer, b'{"number":2,"inner":{"path":"/a"},"many":[{}],"any":[1]}')
    assert (found.number, found.flag, found.any_) == (2, False, [1])
    assert (found.inner, found.many) == (Inner(path="/a"), [Inner()])


def test_integers_are_exact_and_the_last_of_equal_names_counts() -> None:
    assert read(Outer, b'{"number":123456789012345678901234567890}').number % 10**10 == 1234567890
    assert read(Outer, b'{"number":1,"number":4}').number == 4


@pytest.mark.parametrize(
    ("body", "position"),
    [
        (b"", 0),
        (b'{"number":', 10),
        (b'{"number":NaN}', 10),
        (b'{"any":"\\ud800"}', 16),
        (b"\xff", 0),
        (b'{"number":1e999}', 10),
        (b'{"any":' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"}", 6 + DEPTH_MAX),
    ],
)
def test_what_is_no_strict_json_is_refused_with_its_position(body: bytes, position: int) -> None:
    problem = refused(body)
    assert (problem.code, problem.pointer) == ("topic-invalid", None)
    assert problem.position == position


REFUSED = [
    (b"[]", "topic-invalid", None, "A JSON object is wanted."),
    (b"{}", "topic-invalid", "/number", "number is missing."),
    (b'{"number":null}', "topic-invalid", "/number", "number is a whole number."),
    (b'{"number":true}', "topic-invalid", "/number", "number is a whole number."),
    (b'{"number":2.0}', "topic-invalid", "/number", "number is a whole number."),
    (b'{"number":"2"}', "topic-invalid", "/number", "number is a whole number."),
    (b'{"number":-2}', "topic-invalid", "/number", "number is at least 0."),
    (b'{"number":3}', "topic-invalid", "/number", "number is even."),
    (b'{"number":2,"flag":1}', "topic-invalid", "/flag", "flag is true or false."),
    (b'{"number":2,"filter":1}', "filter-invalid", "/filter", "filter is a text."),
    (b'{"number":2,"many":[{},7]}', "topic-invalid", "/many/1", "A JSON object is wanted."),
    (b'{"number":2,"inner":{"path":"a"}}', "topic-invalid", "/inner/path", "a path starts with /."),
    (
        b'{"number":2,"inner":{"path":"/aaaaa"}}',
        "topic-invalid",
        "/inner/path",
        "path has at most 5 characters.",
    ),
    (
        b'{"number":2,"inner":{"zz/q":1}}',
        "topic-invalid",
        "/inner/zz~1q",
        "Unknown field; known: path.",
    ),
    (
        b'{"any_":1,"number":3}',
        "topic-invalid",
        "/any_",
        "Unknown field; known: number, flag, filter, inner, many, any.",
    ),
]


@pytest.mark.parametrize(("body", "code", "pointer", "detail"), REFUSED)
def test_what_does_not_fit_is_refused_with_its_place(
    body: bytes, code: str, pointer: str | None, detail: str
) -> None:
    problem = refused(body)
    assert (problem.code, problem.pointer, problem.detail) == (code, pointer, detail)


def test_a_validator_may_say_code_and_place_itself() -> None:
    problem = refused(b'{"number":2,"filter":"bad"}')
    assert (problem.code, problem.pointer) == ("filter-invalid", "/filter/inside")
    assert (problem.position, problem.detail) == (3, "Not a filter.")


def test_in_the_schema_of_a_merge_patch_every_field_may_be_null() -> None:
    class Patch(Outer):
        model_config = ConfigDict(json_schema_extra=nullable)

    for name, field in Patch.model_json_schema()["properties"].items():
        assert field["anyOf"].count({"type": "null"}) == 1, name
        assert "default" not in field
