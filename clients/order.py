"""Rows in the order of the gateway, by its own language of orders.

`keys` is imported only when rows are sorted: parsing paths needs a library that loads slowly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import msgspec


class Record(Protocol):
    """What is sorted: a row of a replica, or anything with its topic, key and value."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def key(self) -> list[Any] | None:
        """The fields of its key; None on a topic without key."""

    @property
    def value(self) -> Any:
        """Its value."""


Sorted = TypeVar("Sorted", bound=Record)


def in_order(rows: Iterable[Sorted], text: str) -> list[Sorted]:
    """Return rows by an order such as `/price DESC`; ties, and without an order, by key text.

    Numbers are compared as this client has read them: of one with more digits than a double the
    gateway knows the rest as well.

    Raises:
        ValueError: `text` is no order.
    """
    from tidegate.keys.order import Order
    from tidegate.keys.spec import group_key

    token = Order.parse(text).sort_token if text.strip() else None

    def rank(row: Record) -> tuple[Any, ...]:
        ranks = () if token is None else token(msgspec.json.encode(row.value))
        key_text = "" if row.key is None else group_key(msgspec.json.encode(row.key))
        return ranks, row.topic, key_text

    return sorted(rows, key=rank)


def by_field(rows: Iterable[Sorted], name: str, *, descending: bool = False) -> list[Sorted]:
    """Return rows by a top-level field; those that have the same stay as they were."""
    from tidegate.keys.order import Column, Order
    from tidegate.keys.path import FieldPath

    token = Order((Column(FieldPath((name,)), descending),)).sort_token
    return sorted(rows, key=lambda row: token(msgspec.json.encode(row.value)))
