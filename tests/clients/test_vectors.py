"""The vectors that both clients pass are what the gateway's own functions say.

`tests/js/vectors.test.mjs` plays the same file to the JavaScript client.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.rules import rule
from tidegate.clients.order import in_order
from tidegate.clients.replica import RecordId, Row
from tidegate.keys.errors import TextInvalid
from tidegate.keys.order import Order
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import group_key
from tidegate.keys.text.duration import parse_duration

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())


def test_paths_and_keys_are_the_gateways() -> None:
    for text, steps in VECTORS["paths"]:
        assert FieldPath.parse(text) == FieldPath(tuple(steps))
    for text, key in VECTORS["keys"]:
        assert group_key(text.encode()) == key


def test_durations_are_the_gateways() -> None:
    for text, duration_ns in VECTORS["durations"]:
        try:
            found = parse_duration(text)
        except TextInvalid:
            found = None
        assert found == duration_ns, text


@rule("view-1")
@pytest.mark.parametrize("vector", VECTORS["orders"], ids=lambda vector: vector["order"])
def test_rows_are_in_the_order_of_the_gateway_and_of_the_client(vector: dict[str, Any]) -> None:
    order, rows = vector["order"], vector["rows"]
    token = Order.parse(order).sort_token if order else (lambda _: ())

    def rank(row: list[str]) -> tuple[Any, ...]:
        return token(row[1].encode()), group_key(row[0].encode())

    assert sorted(rows[1::2] + rows[::2], key=rank) == rows
    client_rows = [client_row(*row) for row in rows]
    assert in_order(client_rows[1::2] + client_rows[::2], order) == client_rows


def client_row(key: str, value: str) -> Row:
    return Row(RecordId("px", key), json.loads(key), "publish", json.loads(value))
