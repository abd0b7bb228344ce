"""Where paths end, and what division is."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-2": [
        ("/b / 2", 3),
        ("/b /2", 3),
        ("/a-1", None),
        ("/o/p[1]/q[0]", 2),
        ("[/a]", "x"),
    ],
}


@rule("filter-2")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
