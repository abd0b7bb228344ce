"""Bookmarks: opaque to clients, exact to us."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.keys.errors import BookmarkInvalid
from tidegate.keys.text.bookmark import Bookmark, join_bookmark, split_bookmark


@given(st.from_regex(r"[A-Za-z0-9]{1,64}", fullmatch=True), st.integers(0, 10**19 - 1))
def test_a_bookmark_survives_its_text_which_fits_an_event_id(epoch: str, offset: int) -> None:
    bookmark = Bookmark(epoch, offset)
    assert Bookmark.parse(str(bookmark)) == bookmark
    assert re.fullmatch(r"[A-Za-z0-9._~-]{1,128}", str(bookmark))


@pytest.mark.parametrize(
    "text",
    [
        f"{'e' * 65}-1",
        f"e1-1{'0' * 19}",
        "now",
        "",
        "-",
        "e1",
        "e1-",
        "-1",
        "e1-01",
        "e1--1",
        "e1-1 ",
        "e1-1\n",
        "e1-+1",
        "e.1-1",
        "e1-\u0661",
        "a b-7",
        "\u00e9-1",
    ],
)
def test_what_is_not_ours_is_refused(text: str) -> None:
    with pytest.raises(BookmarkInvalid) as refused:
        Bookmark.parse(text)
    assert refused.value.code == "bookmark-invalid"


@pytest.mark.parametrize(
    ("text", "position"), [("", 0), ("now", 3), ("e1-", 3), ("e1-07", 3), ("a b-7", 1), ("-1", 0)]
)
def test_a_refusal_says_where_the_text_breaks(text: str, position: int) -> None:
    with pytest.raises(BookmarkInvalid) as refused:
        split_bookmark(text, 10)
    assert refused.value.position == 10 + position


def test_epoch_and_place_are_taken_apart_and_put_together() -> None:
    assert split_bookmark("e1-17") == ("e1", 17)
    assert join_bookmark(*split_bookmark("2f-0")) == "2f-0"
