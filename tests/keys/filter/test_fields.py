"""What a path finds in a message."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule
from tidegate.keys.filter import filter as module

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-8": [
        ("/o/p/q", 1),
        ("/o/p/q[1]", 2),
        ("/a/x", None),
        ("/b[0]", None),
        ("/l IS NULL", True),
        ("/ll IS NULL", True),
        ("/nn IS NULL", False),
        ("ARRAY_TO_STRING(/deep, ' ')", "4 5"),
    ],
    "Rule filter-9": [("/c + 1", 2), ("/c", 1), ("/nn", None), ("/c AND TRUE", True)],
}


@rule("filter-8", "filter-9")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule


@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_fields_without_a_type_of_their_own_have_the_same_values(
    monkeypatch: pytest.MonkeyPatch, rule: str, text: str, value: object
) -> None:
    monkeypatch.setattr("tidegate.keys.filter.fields._row_decoder", lambda heads: None)
    uncached = module._value.__wrapped__
    monkeypatch.setattr(module, "_value", uncached)
    assert said(text, value), rule
