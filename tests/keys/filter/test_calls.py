"""Calls of functions: signatures, argument kinds and refusals."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import MESSAGE, flattened, said
from tests.support.rules import rule
from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter import Expression
from tidegate.keys.filter.calls import SIGNATURES, signature_of

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-15": [
        ("LENGTH(NULL)", None),
        ("LEFT('abc', 1.9)", "a"),
        ("LEFT('abc', 'w')", None),
        ("COALESCE(/z, '', 3)", 3),
        ("IF(/z, 1, 2)", 2),
        ("IF(1, /c, 2)", 1),
        ("TOPIC_NAME()", "orders"),
        ("MESSAGE_SIZE()", len(MESSAGE)),
        ("SOW_KEY()", None),
    ],
}


@rule("filter-15")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule


TEXTS = {"REGEXP_MATCH": "'a'", "REGEXP_REPLACE": "'a'", "STRFTIME": "'%Y'", "STRPTIME": "'%Y'"}


@rule("filter-15")
@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("argument", ["NULL", "'x'", "-1", "1e308", "NAN_VALUE()", "/c", "TRUE"])
def test_every_function_answers_whatever_it_is_given(name: str, argument: str) -> None:
    signature = SIGNATURES[name]
    given = [argument] * signature.least
    if signature.literal_at is not None:
        given[signature.literal_at] = TEXTS[name]
    evaluate = Expression.parse(f"{name}({', '.join(given)})").evaluator()
    assert isinstance(evaluate(b'{"c":[1e999,{}]}'), bool | int | float | str | None)


@rule("filter-16")
@pytest.mark.parametrize("name", ["UUID7", "BOOKMARK", "AVG", "NOPE"])
def test_others_are_refused(name: str) -> None:
    with pytest.raises(FilterInvalid):
        signature_of(name, 3)
