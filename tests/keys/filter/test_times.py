"""STRFTIME and STRPTIME."""

from __future__ import annotations

import pytest

from tests.keys.filter.cases import flattened, said
from tests.support.rules import rule

RULES: dict[str, list[tuple[str, object]]] = {
    "Rule filter-15": [
        ("STRFTIME('%F %T.%03f %a %j %p', 1700000000.1234)", "2023-11-14 22:13:20.123 Tue 318 PM"),
        ("STRFTIME('%Y', 1e18)", None),
        ("STRFTIME('%Y%%', -1)", "1969%"),
        ("STRPTIME('2023-11-14 22:13:20.5', '%F %T.%f')", 1700000000.5),
        ("STRPTIME('14 nov 23', '%d %b %y')", 1699920000.0),
        ("STRPTIME('2023-02-29', '%F')", None),
        ("STRPTIME('1:00+01:00', '%R%z')", 0.0),
        ("STRPTIME('23:59:59', '%T')", 86399.0),
        ("STRPTIME('24:00:00', '%T')", None),
        ("STRPTIME('00:60:00', '%T')", None),
        ("STRPTIME('00:61:00', '%T')", None),
        ("STRPTIME('00:00:60', '%T')", None),
        ("STRPTIME('00:00:61', '%T')", None),
        ("STRPTIME('12 am', '%I %p')", 0.0),
        ("STRPTIME('3 PM', '%I %p')", 54000.0),
        ("STRPTIME('13 PM', '%I %p')", None),
        ("STRPTIME('0 AM', '%I %p')", None),
        ("STRPTIME('2024 366', '%Y %j')", 1735603200.0),
    ],
}


@rule("filter-15")
@pytest.mark.parametrize(("rule", "text", "value"), flattened(RULES))
def test_an_expression_has_the_value_that_its_rule_says(
    rule: str, text: str, value: object
) -> None:
    assert said(text, value), rule
