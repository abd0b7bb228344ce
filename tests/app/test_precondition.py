"""`If-Match` and `If-None-Match: *`, of a topic that is there and of one that is not."""

from __future__ import annotations

import pytest

from app.entry import Entry
from app.precondition import Precondition
from app.problems import Problem
from app.stores.store import TopicRecord
from tests.support.place import parsed

ENTRY = Entry(TopicRecord("px", parsed(), "e1"))
OTHER = Entry(TopicRecord("px", parsed(), "e2")).etag


@pytest.mark.parametrize(
    ("expected", "entry"),
    [
        (Precondition(), None),
        (Precondition(), ENTRY),
        (Precondition(if_match="*"), ENTRY),
        (Precondition(if_match=f'"other", {ENTRY.etag}'), ENTRY),
        (Precondition(if_none_match="*"), None),
        (Precondition(if_none_match=OTHER), ENTRY),
    ],
)
def test_the_change_may_go_on(expected: Precondition, entry: Entry | None) -> None:
    expected.check(entry)


@pytest.mark.parametrize(
    ("expected", "entry"),
    [
        (Precondition(if_match="*"), None),
        (Precondition(if_match=OTHER), ENTRY),
        (Precondition(if_match=f"W/{ENTRY.etag}"), ENTRY),
        (Precondition(if_none_match="*"), ENTRY),
        (Precondition(if_none_match=f'"other", W/{ENTRY.etag}'), ENTRY),
    ],
)
def test_the_change_is_refused(expected: Precondition, entry: Entry | None) -> None:
    with pytest.raises(Problem, match="precondition-failed"):
        expected.check(entry)
