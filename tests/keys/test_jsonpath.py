"""JSONPath text to plain steps."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.keys.errors import PathInvalid
from tidegate.keys.path import TEXT_LENGTH_MAX, jsonpath_steps


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("$.a", ("a",)),
        ("$.a.b[2].c", ("a", "b", 2, "c")),
        ("$[0][1]", (0, 1)),
        ("$['a.b']['c d']", ("a.b", "c d")),
        ("$.'quoted'", ("quoted",)),
    ],
)
def test_names_and_indexes(text: str, steps: tuple[str | int, ...]) -> None:
    assert jsonpath_steps(text) == steps


@rule("key-4")
@pytest.mark.parametrize(
    "text", ["$", "$.*", "$..a", "$[*]", "$[0:2]", "$.a[?(@.b>1)]", "$.a[-1]", "$.a|$.b"]
)
def test_more_than_one_place_is_refused(text: str) -> None:
    with pytest.raises(PathInvalid) as refused:
        jsonpath_steps(text, 5)
    assert refused.value.position == 5


def test_a_text_has_a_length() -> None:
    name = "a" * (TEXT_LENGTH_MAX - 2)
    assert jsonpath_steps(f"$.{name}") == (name,)
    with pytest.raises(PathInvalid, match="1024"):
        jsonpath_steps(f"$.{name}a")


def test_deep_nesting_is_refused_not_a_crash() -> None:
    with pytest.raises(PathInvalid):
        jsonpath_steps("$" + "(" * 500 + "a" + ")" * 500)


def test_an_error_echoes_no_input() -> None:
    with pytest.raises(PathInvalid) as refused:
        jsonpath_steps("$.<script>")
    assert "script" not in str(refused.value)
