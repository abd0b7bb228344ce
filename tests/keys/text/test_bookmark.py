"""Bookmarks: opaque to clients, exact to us."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tidegate.keys.text.bookmark import Bookmark, continued


@given(st.from_regex(r"[A-Za-z0-9]{1,64}", fullmatch=True), st.integers(0, 10**19 - 1))
def test_a_bookmark_survives_its_text_which_fits_an_event_id(epoch: str, offset: int) -> None:
    bookmark = Bookmark(epoch, offset)
    assert Bookmark.parse(str(bookmark)) == bookmark
    assert re.fullmatch(r"[A-Za-z0-9._~-]{1,128}", str(bookmark))


def test_an_epoch_continues_those_before_it_as_far_as_each_between_does() -> None:
    assert continued("") == {}
    assert continued("4f2a:17 90bc:44") == {"4f2a": 17, "90bc": 44}
    assert continued("4f2a:17 90bc:5 77aa:44") == {"4f2a": 5, "90bc": 5, "77aa": 44}
    assert continued("4f2a:17 90bc:-1") == {"4f2a": -1, "90bc": -1}
