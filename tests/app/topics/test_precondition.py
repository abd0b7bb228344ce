"""What a change requires of its topic: of one that is there, and of one that is not."""

from __future__ import annotations

import pytest

from tests.support.place import parsed
from tidegate.app.refusals import Refused
from tidegate.app.stores.store import TopicRecord
from tidegate.app.topics.registry import ANY, CatalogTopic, Precondition

ENTRY = CatalogTopic(TopicRecord("px", parsed(), "e1"))
OTHER = CatalogTopic(TopicRecord("px", parsed(), "e2")).etag


@pytest.mark.parametrize(
    ("expected", "entry"),
    [
        (Precondition(), None),
        (Precondition(), ENTRY),
        (Precondition(wanted=[ANY]), ENTRY),
        (Precondition(wanted=[OTHER, ENTRY.etag]), ENTRY),
        (Precondition(unwanted=[ANY]), None),
        (Precondition(unwanted=[OTHER]), ENTRY),
    ],
)
def test_the_change_may_go_on(expected: Precondition, entry: CatalogTopic | None) -> None:
    expected.check(entry)


@pytest.mark.parametrize(
    ("expected", "entry"),
    [
        (Precondition(wanted=[ANY]), None),
        (Precondition(wanted=[OTHER]), ENTRY),
        (Precondition(wanted=[]), ENTRY),
        (Precondition(unwanted=[ANY]), ENTRY),
        (Precondition(unwanted=[OTHER, ENTRY.etag]), ENTRY),
    ],
)
def test_the_change_is_refused(expected: Precondition, entry: CatalogTopic | None) -> None:
    with pytest.raises(Refused, match="precondition-failed"):
        expected.check(entry)
