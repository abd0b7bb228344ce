from __future__ import annotations

import pytest

from pipeline.bookmark import join_bookmark, split_bookmark


def test_the_position_is_what_follows_the_last_dash() -> None:
    assert split_bookmark("a-b_c.d~-17") == ("a-b_c.d~", 17)
    assert join_bookmark(*split_bookmark("2f-0")) == "2f-0"


@pytest.mark.parametrize("text", ["", "epoch", "-1", "a-", "a-x", "a-1.0", "a-\u0661"])
def test_what_is_no_bookmark_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a bookmark"):
        split_bookmark(text)
