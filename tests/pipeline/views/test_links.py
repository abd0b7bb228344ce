"""What records are joined by, and what they come to."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.keys.path import FieldPath
from tidegate.pipeline.views.links import Join, Side

ON = [("/a", "/x/y"), ("/b", "/z")]
JOIN = Join(
    tuple((FieldPath.parse(left), FieldPath.parse(right)) for left, right in ON),
    FieldPath.parse("/in/quote"),
)


@rule("view-12")
@pytest.mark.parametrize(
    ("field", "link"),
    [
        ('"1"', '["1","B"]'), ("1", '["1","B"]'), ("1.0", '["1","B"]'), ("true", '["true","B"]'),
        ('"\\u0041"', '["A","B"]'), ('""', None), ("null", None), ("[1]", None), ("{}", None),
    ],
)  # fmt: skip
def test_records_are_joined_by_what_their_fields_say_as_text(field: str, link: str | None) -> None:
    left, right = f'{{"a":{field},"b":"B"}}', f'{{"z":"B","x":{{"y":{field}}}}}'
    assert JOIN.link_of(Side.LEFT)(left.encode()) == link
    assert JOIN.link_of(Side.RIGHT)(right.encode()) == link
    assert JOIN.link_of(Side.LEFT)(b'{"b":"B"}') is None


@rule("view-12")
def test_the_right_record_stands_in_its_place_byte_for_byte() -> None:
    left = b'{"a": 1.0, "in": {"quote": 7, "n": 1}}'
    assert JOIN.joined(left, b'{"bid": 2.50}') == (b'{"a":1.0,"in":{"quote":{"bid": 2.50},"n":1}}')
    assert JOIN.joined(left, None) == b'{"a":1.0,"in":{"n":1}}'
    assert JOIN.joined(b"[1]", b"{}") == b'{"in":{"quote":{}}}'
