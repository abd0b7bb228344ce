"""Numbers as their publishers wrote them: one spelling, exact order, exact sums (rule delta-5)."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.jsontext import canonical_number, comparable, exact, is_number, number_text

pytestmark = rule("delta-5")


HUGE = b"1e" + b"9" * 5_000
TINY = b"1e-" + b"9" * 5_000
LONG = b"1." + b"1" * 100_000

decimals = st.from_regex(
    rb"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        (b"10E-1", "1"),
        (b"-0.0e7", "0"),
        (b"0e" + b"9" * 50, "0"),
        (b"-12.5e-8", "-1.25e-7"),
        (b"1e20", "100000000000000000000"),
        (b"1E+20", "100000000000000000000"),
        (b"12345678901234567890123.5", "1.23456789012345678901235e22"),
        (b"1e000000000000000000000000002", "100"),
    ],
)
def test_an_odd_number_has_one_spelling(text: bytes, spelling: str) -> None:
    assert canonical_number(text) == spelling


@given(decimals, decimals)
@examples(25)
def test_numbers_share_a_spelling_exactly_where_they_are_equal(one: bytes, other: bytes) -> None:
    equal = Decimal(one.decode()) == Decimal(other.decode())
    assert (canonical_number(one) == canonical_number(other)) == equal
    assert Decimal(canonical_number(one)) == Decimal(one.decode())


@pytest.mark.parametrize("text", [HUGE, TINY, LONG, b"-" + HUGE, b"9" * 5_000])
def test_no_number_is_too_large_to_spell_compare_or_calculate_with(text: bytes) -> None:
    assert canonical_number(text) != canonical_number(b"1")
    assert comparable(text) != comparable(b"1")
    assert exact(text) is None or number_text(exact(text) or 0)


def test_order_is_exact_beyond_doubles() -> None:
    rising = [b"-" + HUGE, b"-1e400", b"-1", b"0", TINY, b"1e-400", b"1", b"1.0000000000000000001"]
    rising += [b"9007199254740992", b"9007199254740993", b"1e400"]
    values = [comparable(text) for text in rising]
    assert sorted(values) == values
    assert comparable(b"1.0") == comparable(b"1")
    assert comparable(b"9007199254740992") != comparable(b"9007199254740993")
    assert comparable(HUGE) > comparable(b"1e400")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"7", 7),
        (b"0.1", Fraction(1, 10)),
        (b"1e400", None),
        (b"-1e400", None),
        (b"1e-400", 0),
        (HUGE, None),
        (b"9" * 400, None),
        (b"1" * 300, int("1" * 300)),
    ],
)
def test_what_no_double_can_hold_is_nothing_to_calculate_with(
    text: bytes, number: Fraction | int | None
) -> None:
    assert exact(text) == number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (7, b"7"),
        (Fraction(7), b"7"),
        (Fraction(3, 10), b"0.3"),
        (Fraction(1, 3), b"0.3333333333333333"),
        (Fraction(-1, 2), b"-0.5"),
        (Fraction(1, 10**9), b"1e-9"),
        (Fraction(2**71 + 1, 2), b"1180591620717411303424"),
        (2**70, b"1180591620717411303424"),
        (10**308, b"1" + b"0" * 308),
        (2**1024 - 2**970 - 1, str(2**1024 - 2**970 - 1).encode()),
        (2**1024 - 2**970, b"null"),
        (-(10**4_000), b"null"),
        (Fraction(3 * 10**309 + 1, 2), b"null"),
    ],
)
def test_a_result_is_whole_or_the_double_next_to_it(number: Fraction | int, text: bytes) -> None:
    assert number_text(number) == text


def test_only_numbers_are_numbers() -> None:
    assert [is_number(text) for text in (b"1", b"-1", b'"1"', b"true", b"[1]", b"null")] == [
        *(True, True, False, False, False, False)
    ]
