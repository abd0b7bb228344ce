"""Comparisons of values, and patterns on their texts."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-11": [
        ("/n != NULL", None),
        ("'2.000' <> '2.0'", True),
        ("'2.000' = 2", True),
        ("'w' > 1e300", True),
        ("9007199254740993 = 9007199254740992.0", False),
        ("NAN_VALUE() != NAN_VALUE()", True),
        ("NAN_VALUE() < 'w'", False),
    ],
    "Rule filter-12": [
        ("/n IN (1)", None),
        ("1 IN (NULL, 1)", True),
        ("1 IN (NULL, 2)", None),
        ("1 IN (2)", False),
        ("1 IN (/c)", True),
        ("7 IN (/b)", False),
        ("'2' IN (2)", True),
        ("/c BETWEEN 3 AND 9", False),
        ("2 BETWEEN '1' AND 3", True),
        ("2 BETWEEN 'w' AND 3", None),
        ("'b' BETWEEN 'a' AND 'c'", True),
        ("1 NOT BETWEEN NULL AND 3", None),
        ("/deep BETWEEN '4' AND '4'", True),
    ],
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


@rule("filter-11", "filter-12", "filter-13", "filter-15")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
