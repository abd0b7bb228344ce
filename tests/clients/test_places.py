"""What a reader of a pattern has of each topic, taken from what the stream says."""

from __future__ import annotations

import json

from tidegate.clients.places import Places
from tidegate.clients.sse import Event


def event(name: str, document: object, id_text: str = "") -> Event:
    return Event(name, json.dumps(document), id_text)


def hello(*entries: tuple[str, str | None]) -> Event:
    named = [{"sub": "s1", "topic": topic, "bookmark": place} for topic, place in entries]
    return event("hello", {"session": "S", "subscriptions": named}, "S-0")


def test_it_begins_where_hello_says() -> None:
    places = Places()
    assert places.text == ""
    places.heed(hello(("px.a", "e1-3"), ("px.b", None)))
    assert places.text == "px.a=e1-3,px.b=unknown-0"
    places.heed(event("subscribed", {"sub": "s1", "topic": "px.c", "bookmark": "e3-0"}))
    assert places.text.endswith(",px.c=e3-0")


def test_ids_move_it_whatever_the_rows_look_like() -> None:
    places = Places()
    places.heed(hello(("px.a", "e1-3"), ("px.b", None)))
    places.heed(Event("message", "no JSON", "S-1~e1-5"))
    places.heed(event("group_end", {"sub": "s1", "topic": "px.b"}, "S-2~e2-9"))
    assert places.text == "px.a=e1-5,px.b=e2-9"
    places.heed(Event("message", "{}", "S-3~e2-10"))
    assert places.text == "px.a=e1-5,px.b=e2-10"


def test_an_id_that_only_still_holds_says_nothing() -> None:
    """A topic that has ended does not come back by an event without an id of its own."""
    places = Places()
    places.heed(hello(("px.a", "e1-3")))
    places.heed(event("message", {}, "S-1~e1-5"))
    places.heed(event("unsubscribed", {"sub": "s1", "topic": "px.a"}, "S-2"))
    places.heed(event("late", {"sub": "s1"}, "S-2"))
    assert places.text == ""


def test_a_topic_that_has_begun_again_is_told_by_its_group() -> None:
    places = Places()
    places.heed(hello(("px.a", "e1-3")))
    places.heed(event("group_end", {"sub": "s1", "topic": "px.a"}, "S-1~e7-2"))
    places.heed(Event("message", "[]", "S-2~e7-4"))
    places.heed(Event("message", "[]", "S-3~e8-4"))  # of which nothing is known
    assert places.text == "px.a=e7-4"


def test_another_hello_counts_alone() -> None:
    places = Places()
    places.heed(hello(("px.a", "e1-3"), ("px.b", "e2-1")))
    places.heed(hello(("px.b", "e2-4")))
    assert places.text == "px.b=e2-4"
    places.heed(Event("hello", "no JSON"))
    places.heed(event("hello", {"subscriptions": [{"sub": "s1", "topic": "px.a"}]}))
    assert places.text == ""
