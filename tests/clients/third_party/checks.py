"""What a client of somebody else has to show of a topic."""

from __future__ import annotations

import json

from tests.clients.third_party.libraries import Read, Reading
from tidegate.clients.gateway import Gateway

REMOVALS = "/v1/topics/px/subscribe?options=conflation=none,oof&format=envelope"


def publish(gateway: Gateway, *numbers: int) -> None:
    gateway.publish("px", [json.dumps({"id": "a", "n": number}).encode() for number in numbers])


def number_of(read: Read) -> int:
    """Return the number that a message holds."""
    assert read.name == "message"
    number: int = json.loads(read.data)["value"]["n"]
    return number


def define(gateway: Gateway) -> None:
    """Make the topic, with one record."""
    gateway.put_topic("px", {"key": ["/id"]})
    publish(gateway, 0)


def check_rows(client: Reading, gateway: Gateway) -> None:
    """Follow a new subscription to `REMOVALS`: hello, a snapshot, an update and a removal."""
    assert client.next().name == "hello"
    assert client.next().name == "group_begin"
    assert number_of(client.next()) == 0
    assert client.next().name == "group_end"
    publish(gateway, 1)
    assert number_of(client.next()) == 1
    gateway.delete_records("px", record_key="a")
    removal = json.loads(client.next().data)
    assert (removal["op"], removal["reason"], removal["value"]["n"]) == ("oof", "deleted", 1)
