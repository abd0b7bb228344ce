"""Bookmarks: opaque to clients, exact to us."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tidegate.keys.text.bookmark import Bookmark


@given(st.from_regex(r"[A-Za-z0-9]{1,64}", fullmatch=True), st.integers(0, 10**19 - 1))
def test_a_bookmark_survives_its_text_which_fits_an_event_id(epoch: str, offset: int) -> None:
    bookmark = Bookmark(epoch, offset)
    assert Bookmark.parse(str(bookmark)) == bookmark
    assert re.fullmatch(r"[A-Za-z0-9._~-]{1,128}", str(bookmark))
