"""What a group's values come to (rule view-5)."""

from __future__ import annotations

import itertools
import math
import statistics

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.projection import Aggregate, Cell, aggregated

pytestmark = rule("view-5")


def cells(*texts: str) -> list[Cell]:
    return [Cell(msgspec.json.decode(text), text.encode()) for text in texts]


@rule("view-5")
@pytest.mark.parametrize(
    ("aggregate", "texts", "result"),
    [
        ("COUNT", [], b"0"),
        ("COUNT", ["1", "1.0", '"x"'], b"3"),
        ("COUNT_DISTINCT", [], b"0"),
        ("COUNT_DISTINCT", ["1", "1.0", '"1"', "true", "2"], b"4"),
        ("SUM", ["1", "2"], b"3"),
        ("SUM", ["0.1", "0.2"], b"0.3"),
        ("SUM", ["1e16", "1", "-1e16"], b"1"),
        ("SUM", ["9223372036854775807", "9223372036854775807"], b"18446744073709551614"),
        ("SUM", ["1", '"2.5"', "true"], b"4.5"),
        ("SUM", ["1", '"x"'], b"null"),
        ("SUM", [], b"null"),
        ("AVG", ["1", "2"], b"1.5"),
        ("AVG", ["1", "1", "2"], b"1.3333333333333333"),
        ("AVG", ['"x"'], b"null"),
        ("MIN", ["2", "1.0", "1"], b"1.0"),
        ("MAX", ["2.50", "1", '"x"'], b"2.50"),
        ("MAX", ['"a"', '"b"'], b'"b"'),
        ("MIN", ["true"], b"null"),
        ("MIN", [], b"null"),
        ("FIRST", ["2.50", "1"], b"2.50"),
        ("LAST", ["2.50", "1.0"], b"1.0"),
        ("FIRST", [], b"null"),
        ("LAST", [], b"null"),
        ("STDDEV_SAMP", ["2", "4"], b"1.4142135623730951"),
        ("STDDEV_POP", ["2", "4"], b"1"),
        ("STDDEV_SAMP", ["2"], b"null"),
        ("STDDEV_POP", ["2"], b"0"),
        ("STDDEV_POP", ["0.1", "0.3"], b"0.1"),
        ("STDDEV_POP", ["1e16", "10000000000000002"], b"1"),
        ("STDDEV_POP", ["1e-300", "3e-300"], b"1e-300"),
        ("STDDEV_POP", ["1e300", "3e300"], b"1" + b"0" * 300),
        ("STDDEV_POP", ["1", '"x"'], b"null"),
    ],
)
def test_an_aggregate(aggregate: str, texts: list[str], result: bytes) -> None:
    assert aggregated(Aggregate(aggregate), cells(*texts)) == result


@rule("view-5")
@pytest.mark.parametrize("aggregate", ["SUM", "AVG", "STDDEV_POP", "STDDEV_SAMP"])
def test_infinity_and_nan_are_no_numbers(aggregate: str) -> None:
    for value in (math.inf, -math.inf, math.nan):
        assert aggregated(Aggregate(aggregate), [*cells("1", "2"), Cell(value, b"null")]) == b"null"


numbers = st.lists(st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9), min_size=2, max_size=4)


@given(numbers)
@examples(100, nightly=2_000)
def test_order_cannot_be_seen_in_what_is_calculated(values: list[float]) -> None:
    for name in ("SUM", "AVG", "STDDEV_POP", "STDDEV_SAMP"):
        results = {
            aggregated(
                Aggregate(name), cells(*(msgspec.json.encode(each).decode() for each in order))
            )
            for order in itertools.permutations(values)
        }
        assert len(results) == 1


@given(st.lists(st.integers(-1_000, 1_000), min_size=2, max_size=20))
@examples(100, nightly=2_000)
def test_deviations_are_those_of_the_textbook(values: list[int]) -> None:
    found = cells(*map(str, values))
    population = msgspec.json.decode(aggregated(Aggregate.STDDEV_POP, found))
    sample = msgspec.json.decode(aggregated(Aggregate.STDDEV_SAMP, found))
    assert population == pytest.approx(statistics.pstdev(values), rel=1e-12)
    assert sample == pytest.approx(statistics.stdev(values), rel=1e-12)
