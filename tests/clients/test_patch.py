"""Merge patches, by the examples of RFC 7396."""

from __future__ import annotations

import json

import pytest

from tidegate.clients.patch import patched

# The table of RFC 7396, appendix A.
RFC = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]


@pytest.mark.parametrize(("value", "patch", "result"), RFC)
def test_as_the_rfc_says(value: str, patch: str, result: str) -> None:
    assert patched(json.loads(value), json.loads(patch)) == json.loads(result)


def test_nothing_is_changed_in_place() -> None:
    value = {"a": {"b": 1}, "c": [1]}
    assert patched(value, {"a": {"b": None}}) == {"a": {}, "c": [1]}
    assert value == {"a": {"b": 1}, "c": [1]}
