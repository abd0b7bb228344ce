"""`If-Match` and `If-None-Match: *`, of a topic that is there and of one that is not."""

from __future__ import annotations

import pytest

from tests.support.place import parsed
from tidegate.app.refusals import Refused
from tidegate.app.stores.store import TopicRecord
from tidegate.app.topics.registry import CatalogTopic, Precondition

ENTRY = CatalogTopic(TopicRecord("px", parsed(), "e1"))


def coded(tag: str, coding: str) -> str:
    """What Apache and Caddy make of a tag."""
    return f'{tag[:-1]}-{coding}"'


OTHER = CatalogTopic(TopicRecord("px", parsed(), "e2")).etag


@pytest.mark.parametrize(
    ("expected", "entry"),
    [
        (Precondition(), None),
        (Precondition(), ENTRY),
        (Precondition(if_match="*"), ENTRY),
        (Precondition(if_match=f'"other", {ENTRY.etag}'), ENTRY),
        (Precondition(if_match=f'"a,b" ,, {ENTRY.etag},'), ENTRY),
        (Precondition(if_match=" * "), ENTRY),
        (Precondition(if_match=f'W/"other", W/{ENTRY.etag}'), ENTRY),
        *[(Precondition(if_match=coded(ENTRY.etag, of)), ENTRY) for of in ("gzip", "br", "zstd")],
        (Precondition(if_none_match="*"), None),
        (Precondition(if_none_match=OTHER), ENTRY),
    ],
)
def test_the_change_may_go_on(expected: Precondition, entry: CatalogTopic | None) -> None:
    expected.check(entry)


@pytest.mark.parametrize(
    ("expected", "entry"),
    [
        (Precondition(if_match="*"), None),
        (Precondition(if_match=OTHER), ENTRY),
        (Precondition(if_match=f"W/{OTHER}"), ENTRY),
        (Precondition(if_match=coded(OTHER, "gzip")), ENTRY),
        (Precondition(if_none_match=coded(ENTRY.etag, "gzip")), ENTRY),
        (Precondition(if_none_match="*"), ENTRY),
        (Precondition(if_none_match=f'"other", W/{ENTRY.etag}'), ENTRY),
        (Precondition(if_match=f"*,{ENTRY.etag}"), ENTRY),
        (Precondition(if_match='*,"a"'), ENTRY),
        (Precondition(if_match='"a",*'), ENTRY),
        (Precondition(if_match="*,*"), ENTRY),
        (Precondition(if_match=ENTRY.etag.strip('"')), ENTRY),
        (Precondition(if_match=""), ENTRY),
        (Precondition(if_none_match='*,"a"'), None),
        (Precondition(if_none_match=OTHER.strip('"')), ENTRY),
    ],
)
def test_the_change_is_refused(expected: Precondition, entry: CatalogTopic | None) -> None:
    with pytest.raises(Refused, match="precondition-failed"):
        expected.check(entry)
