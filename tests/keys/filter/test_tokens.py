"""Tokens of the filter language, paths among them."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-3": [
        (r"'\x41\102\t\q\''", "AB\tq'"),
        (r"r'\d'", "\\d"),
        (r"'\xc3\xa9'", "\u00e9"),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2.0**64),
        (".5e1", 5.0),
    ],
    "Rule filter-2": [
        ("/b / 2", 3),
        ("/b /2", 3),
        ("/a-1", None),
        ("/o/p[1]/q[0]", 2),
        ("[/a]", "x"),
    ],
}


@rule("filter-2", "filter-3")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
