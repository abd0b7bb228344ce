"""What a filter costs is counted."""

from __future__ import annotations

import json

import pytest

from tests.support.rules import rule
from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter import Expression
from tidegate.keys.filter.limits import DEPTH_MAX, NODES_MAX, Budget


@rule("filter-4")
def test_a_budget_counts_nodes_and_depth() -> None:
    budget = Budget()
    for _ in range(NODES_MAX):
        budget.node(0)
    with pytest.raises(FilterInvalid, match="nodes"):
        budget.node(3)
    for _ in range(DEPTH_MAX + 1):
        with budget.nested(0):
            pass


@rule("filter-4")
@pytest.mark.parametrize(
    "text",
    [
        "REPLACE(/a, 'a', /a)",
        "UPPER(CONCAT(/a, 'x'))",
        "REGEXP_REPLACE(/a, 'a', 'b')",
        "IF(/a LIKE '(a|b)*a(a|b){500}', 1, NULL)",
        "MD5(CONCAT(/a, /a))",
    ],
)
def test_what_would_cost_too_much_is_null(text: str) -> None:
    payload = json.dumps({"a": "a" * 8_192}).encode()
    assert Expression.parse(text).evaluator()(payload) is None
    assert Expression.parse("INSTR(/a, 'ab') + LENGTH(/a)").evaluator()(payload) == 8_192
