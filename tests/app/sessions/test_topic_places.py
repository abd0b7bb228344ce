"""Places in several topics as one text."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.app.http.problems import Problem
from tidegate.app.sessions.subscribe_request import PLACES_MAX, UNKNOWN, place_in, places_of
from tidegate.keys.text.bookmark import Bookmark


def test_each_topic_has_its_place() -> None:
    places = places_of("px.eur=e1-7, px-2=e2-0")
    assert places == {"px.eur": Bookmark("e1", 7), "px-2": Bookmark("e2", 0)}


def test_what_is_no_bookmark_is_a_place_that_nobody_knows() -> None:
    assert places_of("px=unknown-0,fx=?,cx=") == dict.fromkeys(("px", "fx", "cx"), UNKNOWN)


@pytest.mark.parametrize(
    "text", ["", "px", "=e1-1", "p x=e1-1", "px=e1-1,px=e1-2", "px=e1-1,", "px.*=e1-1",
             ",".join(f"t{at}=e1-1" for at in range(PLACES_MAX + 1))]
)  # fmt: skip
def test_what_is_no_list_of_places_is_refused(text: str) -> None:
    with pytest.raises(Problem) as refused:
        places_of(text)
    assert refused.value.code == "bookmark-invalid"


@rule("session-11")
def test_a_topic_that_is_not_named_is_new_to_its_reader() -> None:
    places = places_of("px=e1-7")
    assert place_in(places, "px", "e9") == Bookmark("e1", 7)
    assert place_in(places, "fx", "e9") == Bookmark("e9", 0)
