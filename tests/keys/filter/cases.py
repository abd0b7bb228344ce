"""One message, and whether expressions over it have the expected values."""

from __future__ import annotations

import math

from tidegate.keys.filter import Expression

MESSAGE = (
    b'{"a":"x","b":6,"c":[1,"2",null,"w"],"o":{"p":[{"q":1},{"q":[2,3]}]},"e":"","t":true,"d":2.5,'
    b'"n":null,"l":[],"ll":[[]],"nn":[null],"oo":[{}],"u":"\xc3\xa9","s":"2.0","deep":[[4],5]}'
)


def flattened(rules: dict[str, list[tuple[str, object]]]) -> list[tuple[str, str, object]]:
    """Each case with the rule it is about."""
    return [(rule, text, value) for rule, cases in rules.items() for text, value in cases]


def said(text: str, value: object) -> bool:
    """Whether the expression has this value, of this very type, in MESSAGE."""
    found = Expression.parse(text).evaluator("orders")(MESSAGE)
    if isinstance(value, float) and math.isnan(value):
        return isinstance(found, float) and math.isnan(found)
    return (type(found), found) == (type(value), value)
