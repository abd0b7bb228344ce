"""Calls: what NULL arguments do, and what is known of a message."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import MESSAGE, flattened, said
from tests.support.rules import rule

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
