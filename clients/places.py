"""What a reader of a pattern has of each topic, so that it can go on where its session is gone."""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.clients.sse import Event

NOWHERE = "unknown-0"
"""No gateway knows this place: a topic is continued from it by a snapshot."""


class Places:
    """The place in each topic, kept from the ids of events and from what `hello` tells."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}
        self._topics: dict[str, str] = {}
        self._id = ""

    @property
    def text(self) -> str:
        """As a gateway takes them; empty while there are none."""
        return ",".join(f"{topic}={place}" for topic, place in self._places.items())

    def heed(self, event: Event) -> None:
        """Take from an event what it says of places."""
        match event.name:
            case "hello":
                self._places.clear()
                for entry in _fields(event).get("subscriptions", ()):
                    self._begin(entry)
            case "subscribed":
                self._begin(_fields(event))
            case "unsubscribed":
                self._places.pop(_fields(event).get("topic", ""), None)
            case _ if event.id != self._id:
                self._move(event)
        self._id = event.id

    def _begin(self, entry: dict[str, Any]) -> None:
        if "bookmark" in entry:
            self._put(entry["topic"], entry["bookmark"] or NOWHERE)

    def _move(self, event: Event) -> None:
        place = event.id.partition("~")[2]
        if place:
            topic = self._topics.get(_epoch(place)) or _fields(event).get("topic")
            if isinstance(topic, str):
                self._put(topic, place)

    def _put(self, topic: str, place: str) -> None:
        self._places[topic] = place
        if place != NOWHERE:
            self._topics[_epoch(place)] = topic


def _epoch(place: str) -> str:
    return place.rpartition("-")[0]


def _fields(event: Event) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(event.text)
    except msgspec.DecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}
