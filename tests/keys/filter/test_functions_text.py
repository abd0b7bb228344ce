"""Functions of texts."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-6": [("LENGTH(/u)", 2), ("UPPER(/u)", "\u00e9"), ("LEFT(/u, 1)", "\ufffd")],
    "Rule filter-15": [
        ("INSTR('abc', 'c')", 3),
        ("INSTR('abc', 'z')", 0),
        ("INSTR_I('abc', 'C')", 3),
        ("STREQUAL_I('aB', 'Ab')", True),
        ("LEFT('abc', 0)", None),
        ("RIGHT('abc', 2)", "bc"),
        ("SUBSTR('fandango', 5)", "ango"),
        ("SUBSTR('fandango', -3, 2)", "ng"),
        ("SUBSTR('abc', 0, 1)", "a"),
        ("SUBSTR('abc', -9)", "abc"),
        ("SUBSTR('abc', 4)", None),
        ("TRIM(' a ')", "a"),
        ("CONCAT(LTRIM(' a '), '|')", "a |"),
        ("CONCAT(RTRIM(' a '), '|')", " a|"),
        ("REVERSE('abc')", "cba"),
        ("LOWER('AB')", "ab"),
        ("CONCAT('a', NULL, 'b')", "ab"),
        ("REPLACE('aab', 'a', NULL)", "b"),
        ("MD5('abc')", "900150983cd24fb0d6963f7d28e17f72"),
        ("CRC32('abc')", 891568578),
        ("CHAR_VALUE(65)", "A"),
        ("CHAR_VALUE(256)", None),
        ("TRUE_VALUE()", True),
        ("FALSE_VALUE()", False),
    ],
}


@rule("filter-6", "filter-15")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
