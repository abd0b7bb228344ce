"""Operators and three-valued logic."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule
from tidegate.keys.filter import Filter
from tidegate.keys.filter.compiling import Compiler
from tidegate.keys.filter.tree import Node

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-1": [
        ("/b > 5 aNd not /b <> 6", True),
        ("5 mod 3 == 2", True),
        ("(1 = 1) + 1", 2),
        ("- /b", -6),
        ("--5", 5),
        ("+5", 5),
        ("NOT 1 = 2 AND 1 = 1", True),
        ("1 = 1 OR 1 = 1 AND 1 = 2", True),
        ("2 + 3 * 2", 8),
        ("10 - 3 - 2", 5),
        ("1 IS NOT NAN", True),
    ],
    "Rule filter-10": [
        ("NULL AND FALSE", None),
        ("FALSE AND NULL", False),
        ("NULL OR TRUE", True),
        ("NULL OR FALSE", None),
        ("TRUE OR NULL", True),
        ("TRUE AND NULL", None),
        ("FALSE OR NULL", None),
    ],
    "Rule filter-13": [("/n IS NAN", False), ("'w' IS NAN", False), ("('w' + 1) IS NAN", True)],
}


@rule("filter-1", "filter-10", "filter-13")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule


def test_each_node_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nesting costs what it has nodes: a node compiled twice would double at every level."""
    compiled: list[object] = []
    compile_node = Compiler._value

    def noted(self: Compiler, node: Node) -> object:
        compiled.append(node)
        return compile_node(self, node)

    monkeypatch.setattr(Compiler, "_value", noted)
    Filter.parse("NOT (/b AND " * 12 + "/a" + ")" * 12).matcher("once")
    assert len(compiled) == 12 * 3 + 1
