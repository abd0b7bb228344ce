"""Places in several topics, as a reader of a pattern brings them: `px.eur=e1-7,px.usd=e2-9`."""

from __future__ import annotations

from collections.abc import Mapping

from app.problems import Problem
from app.query import checked_topic_name
from conflation.bookmark import Bookmark
from conflation.errors import BookmarkInvalid

UNKNOWN = Bookmark("unknown", 0)
"""No topic has this epoch: continued by a snapshot."""

PLACES_MAX = 10_000


def places_of(text: str) -> dict[str, Bookmark]:
    """The bookmark of each topic; what is no bookmark is a place that nobody knows.

    Raises:
        Problem: bookmark-invalid.
    """
    parts = text.split(",")
    if len(parts) > PLACES_MAX:
        raise _invalid(f"at most {PLACES_MAX} topics")
    places: dict[str, Bookmark] = {}
    for part in parts:
        name, equals, mark = part.strip().partition("=")
        if not equals or name in places:
            raise _invalid("each topic once, as topic=bookmark")
        places[_checked(name)] = place_of(mark)
    return places


def place_of(text: str) -> Bookmark:
    """A bookmark, or the place that no topic knows."""
    try:
        return Bookmark.parse(text)
    except BookmarkInvalid:
        return UNKNOWN


def place_in(places: Mapping[str, Bookmark], topic: str, epoch: str) -> Bookmark:
    """Where a reader goes on in a topic: one that it does not name has been made since."""
    return places.get(topic, Bookmark(epoch, 0))


def _checked(name: str) -> str:
    try:
        return checked_topic_name(name)
    except Problem as problem:
        raise _invalid("a topic's name before =") from problem


def _invalid(expected: str) -> Problem:
    return Problem("bookmark-invalid", f"bookmarks: {expected}.")
