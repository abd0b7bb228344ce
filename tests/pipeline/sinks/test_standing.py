"""What a topic has already is not told again, and what it has besides is left over."""

from __future__ import annotations

from tests.support.rules import rule
from tidegate.pipeline.sinks.topic import ExistingRecords

HAS = [
    b'{"key":["a"],"bookmark":"e-1","value":{"n":1}}\n{"key":["b"],"bookmark":"e-2","value":{"n":2}}\n',
    b'{"key":["c"],"bookmark":"e-3","value":{"n":3}}\n',
]


@rule("pipeline-13")
def test_news_is_what_is_not_there_so() -> None:
    standing = ExistingRecords(HAS)
    assert not standing.is_news('["a"]', b'{"n":1}')
    assert standing.is_news('["b"]', b'{"n":9}')
    assert standing.is_news('["d"]', b'{"n":4}')
    assert list(standing.left()) == ['["c"]']


def test_a_removal_is_news_where_there_is_a_record() -> None:
    standing = ExistingRecords(HAS)
    assert standing.is_news('["a"]', None)
    assert not standing.is_news('["d"]', None)


def test_an_empty_topic_has_nothing_left() -> None:
    assert list(ExistingRecords([]).left()) == []
