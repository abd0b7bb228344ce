"""A message is one line of JSON, and what JSON cannot say is refused before it is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from tidegate.clients.message import line_of, lines_of


@dataclass
class Quote:
    symbol: str
    px: float | None


class Struct(msgspec.Struct):
    symbol: str
    px: float | None


class Model(pydantic.BaseModel):
    symbol: str
    px: float | None


@pytest.mark.parametrize("kind", [Quote, Struct, Model])
def test_records_of_the_common_kinds_are_messages(kind: Any) -> None:
    assert line_of(kind(symbol="IBM", px=1.5)) == b'{"symbol":"IBM","px":1.5}'
    assert line_of([kind(symbol="IBM", px=None)]) == b'[{"symbol":"IBM","px":null}]'
    with pytest.raises(ValueError, match="/px is nan, which JSON cannot say"):
        line_of(kind(symbol="IBM", px=math.nan))


@pytest.mark.parametrize("kind", [Quote, Struct, Model, dict])
def test_one_message_needs_no_list(kind: Any) -> None:
    line = b'{"symbol":"IBM","px":1.5}'
    one = kind(symbol="IBM", px=1.5)
    assert list(lines_of(one)) == [line]
    assert list(lines_of([one, one])) == [line, line]
    assert list(lines_of(each for each in (one, line))) == [line, line]


@pytest.mark.parametrize("one", [b"[1]", bytearray(b"[1]"), memoryview(b"[1]"), "text", 7, None])
def test_texts_and_numbers_are_one_message(one: Any) -> None:
    assert list(lines_of(one)) == [line_of(one)]
    assert line_of(bytearray(b"[1]")) == b"[1]"


def test_a_list_of_lists_is_several_messages() -> None:
    assert list(lines_of([[1, 2], []])) == [b"[1,2]", b"[]"]


def test_texts_and_plain_values_are_messages() -> None:
    assert line_of(b'{"k": 1}') == b'{"k": 1}'
    assert line_of({"a": None, "b": [1, "null", True]}) == b'{"a":null,"b":[1,"null",true]}'
    assert line_of(None) == b"null"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.inf, "the message is inf"),
        ({"rows": [{"px": 1.0}, {"px": -math.inf}]}, "/rows/1/px is -inf"),
        ({"a": (math.nan,)}, "/a/0 is nan"),
    ],
)
def test_a_number_that_is_not_finite_is_refused_with_its_path(value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        line_of(value)


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="a value of type object"):
        line_of({"a": object()})


@pytest.mark.parametrize("text", [b"1\n2", b"1\r"])
def test_a_text_of_two_lines_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="one line"):
        line_of(text)
