"""Functions of the filter language on texts and numbers."""

from __future__ import annotations

import math

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-6": [("LENGTH(/u)", 2), ("UPPER(/u)", "\u00e9"), ("LEFT(/u, 1)", "\ufffd")],
    "Rule filter-15": [
        ("GREATEST(1, 'w', NULL, 2)", "w"),
        ("LEAST(2, '1')", "1"),
        ("LEAST(NULL)", None),
        ("ARRAY_COUNT(/c)", 4),
        ("ARRAY_COUNT(/n)", 0),
        ("ARRAY_COUNT(/b)", 1),
        ("ARRAY_MAX(/c)", "w"),
        ("ARRAY_MIN(/deep)", 4),
        ("ARRAY_SUM(/deep)", 9),
        ("ARRAY_SUM(/nn)", None),
        ("ARRAY_TO_STRING(/c, '-', 'N')", "1-2-N-w"),
        ("ARRAY_TO_STRING(/c, '')", "12w"),
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
        ("ABS(-9223372036854775808)", 2**63),
        ("SIGN(-2.5)", -1),
        ("CEILING(2.1)", 3),
        ("FLOOR(-2.1)", -3),
        ("ROUND(2.5)", 3),
        ("ROUND(-2.5)", -3),
        ("ROUND(2.675, 2)", 2.68),
        ("ROUND(1250, -2)", 1300),
        ("ROUND(1e300)", 1e300),
        ("ROUND(6e29, -30)", 1e30),
        ("ROUND(6e30, -31)", 6e30),
        ("ROUND(1.6e-30, 30)", 2e-30),
        ("ROUND(1.6e-30, 31)", 2e-30),
        ("SQRT(-1)", math.nan),
        ("LN(0)", -math.inf),
        ("EXP(1000)", math.inf),
        ("SINH(-1000)", -math.inf),
        ("POWER(0, -1)", math.inf),
        ("POWER(0, 2)", 0.0),
        ("POWER(2, -1)", 0.5),
        ("POWER(-10, 999)", -math.inf),
        ("COT(0)", math.inf),
        ("LOG2(8)", 3.0),
        ("SIN(1e308 * 10)", math.nan),
        ("WIDTH_BUCKET(5, 0, 10, 5)", 3),
        ("WIDTH_BUCKET(-1, 0, 10, 5)", 0),
        ("WIDTH_BUCKET(10, 0, 10, 5)", 6),
        ("WIDTH_BUCKET(1, 10, 0, 5)", 5),
        ("WIDTH_BUCKET(1, 1, 1, 5)", None),
        ("ROUND(GEO_DISTANCE(0, 0, 0, 1))", 111195),
        ("GEO_DISTANCE(0, 0, 0, 'w')", math.nan),
    ],
}


@rule("filter-6", "filter-15")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
