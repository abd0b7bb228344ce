"""A message is one line of JSON, and what JSON cannot represent is refused before it is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pandas
import pydantic
import pytest

from tidegate.clients.message import line_of, lines_of


@dataclass
class Quote:
    symbol: str
    px: float


class Struct(msgspec.Struct):
    symbol: str
    px: float


class Model(pydantic.BaseModel):
    symbol: str
    px: float


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


def test_bytes_are_json_already_and_values_become_json() -> None:
    assert line_of(b'{"k": 1}') == b'{"k": 1}'
    assert line_of({"k": Decimal("1.10")}) == b'{"k":1.10}'
    with pytest.raises(ValueError, match="/k is nan, which JSON cannot represent"):
        line_of({"k": math.nan})
    with pytest.raises(TypeError, match="a value of type object"):
        line_of({"k": object()})


@pytest.mark.parametrize("text", [b"1\n2", b"1\r"])
def test_a_text_of_two_lines_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="one line"):
        line_of(text)


def test_a_frame_is_no_message_and_no_list_of_its_columns() -> None:
    frame = pandas.DataFrame({"k": [1, 2]})
    with pytest.raises(TypeError, match=r"publish its rows, .*to_dict\('records'\)"):
        list(lines_of(frame))
    assert list(lines_of(frame.to_dict("records"))) == [b'{"k":1}', b'{"k":2}']


def test_a_message_may_have_a_field_named_columns() -> None:
    @dataclass
    class Layout:
        columns: int

    assert list(lines_of(Layout(3))) == [b'{"columns":3}']
