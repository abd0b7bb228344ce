"""A topic as the routes use it: its key and schema are made once for each definition."""

from __future__ import annotations

import pytest

from tests.support.place import parsed
from tidegate.app.refusals import Refused
from tidegate.app.stores.store import TopicRecord
from tidegate.app.topics.registry import CatalogTopic


def test_a_plain_topic_has_neither_key_nor_schema() -> None:
    entry = CatalogTopic(TopicRecord("px", parsed(), "e"))
    assert entry.key_of is None
    entry.check_schema(b"anything", None)


def test_a_new_definition_brings_its_key_and_schema() -> None:
    entry = CatalogTopic(TopicRecord("px", parsed(), "e"))
    before = entry.etag
    entry.redefine(TopicRecord("px", parsed(key=["/k"], schema={"required": ["v"]}), "e"))
    assert entry.key_of is not None
    assert entry.key_of(b'{"k":1.0}') == "[1]"
    assert entry.etag != before
    with pytest.raises(Refused) as refused:
        entry.check_schema(b'{"k":1}', 7)
    assert (refused.value.code, refused.value.line) == ("schema-violation", 7)
    assert (refused.value.pointer, "required" in refused.value.detail) == ("", True)
