"""Python values as JSON text: Decimals keep their digits; what JSON cannot represent fails."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest

from tidegate.keys.python_values import json_text


@dataclass
class Quote:
    symbol: str
    px: float | Decimal | None


class Struct(msgspec.Struct):
    symbol: str
    px: float | Decimal | None


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(allow_inf_nan=True)
    symbol: str
    px: float | Decimal | None


@pytest.mark.parametrize("kind", [Quote, Struct, Model, dict])
def test_records_of_the_common_kinds_are_objects(kind: Any) -> None:
    assert json_text(kind(symbol="IBM", px=1.5)) == b'{"symbol":"IBM","px":1.5}'
    assert json_text([kind(symbol="IBM", px=None)]) == b'[{"symbol":"IBM","px":null}]'
    with pytest.raises(ValueError, match="/px is nan, which JSON cannot represent"):
        json_text(kind(symbol="IBM", px=math.nan))


@pytest.mark.parametrize("kind", [Quote, Struct, Model, dict])
@pytest.mark.parametrize("digits", ["1.10", "0.1234567890123456789", "-100", "1E+3", "1E+400"])
def test_a_decimal_is_a_number_with_its_digits(kind: Any, digits: str) -> None:
    text = json_text(kind(symbol="IBM", px=Decimal(digits)))
    assert text == b'{"symbol":"IBM","px":%s}' % digits.encode()


def test_numbers_and_texts_of_numpy_are_those_of_python() -> None:
    numpy = pytest.importorskip("numpy", reason="an extra, which is not installed")
    given = {
        "text": numpy.str_("IBM"),
        "whole": numpy.int64(2**63 - 1),
        "unsigned": numpy.uint64(2**64 - 1),
        "double": numpy.float64(0.1),
        "single": numpy.float32(0.5),
        "is_so": numpy.bool_(True),
    }
    written = b'"whole":9223372036854775807,"unsigned":18446744073709551615,"double":0.1'
    assert json_text(given) == b'{"text":"IBM",%s,"single":0.5,"is_so":true}' % written
    with pytest.raises(ValueError, match="/px is nan, which JSON cannot represent"):
        json_text({"px": numpy.float32("nan")})
    for other in (numpy.array([1]), numpy.datetime64(1, "ns"), numpy.longdouble(1)):
        with pytest.raises(TypeError, match=r"cannot hold a value of type .*: convert it to"):
            json_text({"a": other})


def test_times_of_pandas_are_texts_and_none_is_null() -> None:
    pandas = pytest.importorskip("pandas", reason="an extra, which is not installed")
    at = pandas.Timestamp("2026-11-21T21:00:00.123456789Z")
    assert json_text({"at": at, "none": pandas.NaT}) == (
        b'{"at":"2026-11-21T21:00:00.123456789+00:00","none":null}'
    )


def test_plain_values_are_themselves() -> None:
    assert json_text({"a": None, "b": [1, "null", True]}) == b'{"a":null,"b":[1,"null",true]}'
    assert json_text({"a": "NaN", "b": Decimal("1E+400")}) == b'{"a":"NaN","b":1E+400}'
    assert json_text(None) == b"null"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.inf, "the message is inf"),
        (Decimal("sNaN"), "the message is sNaN"),
        ({"rows": [{"px": 1.0}, {"px": -math.inf}]}, "/rows/1/px is -inf"),
        ({"a": (math.nan,)}, "/a/0 is nan"),
        ({"a": [Decimal("-Infinity")]}, "/a/0 is -Infinity"),
    ],
)
def test_a_number_that_is_not_finite_is_refused_with_its_path(value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        json_text(value)


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="a value of type object"):
        json_text({"a": object()})
