"""LIKE and regular expressions."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-13": [
        ("'abc' LIKE 'b'", True),
        (r"/u LIKE r'^.$'", True),
        ("'ABC' LIKE '(?i)b'", True),
        ("1 LIKE ''", True),
        ("/n LIKE ''", None),
        ("12 BEGINS WITH (1)", True),
        ("'ab' ENDS WITH ('x', NULL)", None),
    ],
    "Rule filter-15": [
        ("REGEXP_MATCH('abc', '^b')", False),
        ("REGEXP_REPLACE('abc', 'x*', '-')", "-a-b-c-"),
        (r"REGEXP_REPLACE('ab', '(a)(b)', r'\2\1\9\\\0')", "ba\\ab"),
    ],
}


@rule("filter-13", "filter-15")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
