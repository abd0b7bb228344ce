"""Which functions there are."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter import Expression
from tidegate.keys.filter.calls import SIGNATURES, signature_of

TEXTS = {"REGEXP_MATCH": "'a'", "REGEXP_REPLACE": "'a'", "STRFTIME": "'%Y'", "STRPTIME": "'%Y'"}


@rule("filter-15")
@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("argument", ["NULL", "'x'", "-1", "1e308", "NAN_VALUE()", "/c", "TRUE"])
def test_every_function_answers_whatever_it_is_given(name: str, argument: str) -> None:
    signature = SIGNATURES[name]
    given = [argument] * signature.least
    if signature.literal is not None:
        given[signature.literal] = TEXTS[name]
    evaluate = Expression.parse(f"{name}({', '.join(given)})").evaluator()
    assert isinstance(evaluate(b'{"c":[1e999,{}]}'), bool | int | float | str | None)


@rule("filter-16")
@pytest.mark.parametrize("name", ["UUID7", "BOOKMARK", "AVG", "NOPE"])
def test_others_are_refused(name: str) -> None:
    with pytest.raises(FilterInvalid):
        signature_of(name, 3)
