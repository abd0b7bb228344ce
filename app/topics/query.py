"""Queries of the state of the world: which records, in what order, how many, which fields."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

import msgspec

from tidegate.app.access.entitlement import narrowed_query
from tidegate.app.access.grants import Entitlement
from tidegate.app.http.problems import Problem
from tidegate.app.http.requests import checked_characters, integer
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Frame
from tidegate.conflation.options.syntax import SKIP_N_MAX, TOP_N_MAX
from tidegate.keys.errors import KeysError
from tidegate.keys.filter import Filter
from tidegate.keys.order import Order
from tidegate.keys.select import Select

PARAMETERS: Mapping[str, str] = {
    "filter": "filter-invalid",
    "order_by": "options-invalid",
    "top_n": "options-invalid",
    "skip_n": "options-invalid",
    "select": "options-invalid",
}
# Bounds how long streams wait for a query.
LOOKED_AT_ONCE = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SowQuery:
    """A query of records; by default all, by last change."""

    filter: Filter | None = None
    order: Order | None = None
    top_n: int | None = None
    skip_n: int = 0
    select: Select | None = None

    @classmethod
    def read(cls, values: Mapping[str, str], kind: Kind, characters_max: int) -> SowQuery:
        """Parse the query parameters, which are a subscription's.

        Raises:
            Problem: filter-invalid or options-invalid, with the position in the parameter.
        """
        for name in ("filter", "order_by", "select"):
            checked_characters(values.get(name, ""), characters_max, PARAMETERS[name], name)
            # Refused and not ignored: the answer would look as if it had been filtered.
            if values.get(name) and kind in (Kind.TEXT, Kind.BINARY):
                raise Problem(PARAMETERS[name], f"{name} needs messages with fields.", position=0)
        if "skip_n" in values and "top_n" not in values:
            raise Problem("options-invalid", "skip_n needs top_n beside it.")
        return cls(
            _parsed(values, "filter", Filter.parse),
            _parsed(values, "order_by", Order.parse),
            _count(values, "top_n", 1, TOP_N_MAX),
            _count(values, "skip_n", 0, SKIP_N_MAX) or 0,
            _parsed(values, "select", Select.parse),
        )

    def narrowed(self, entitlement: Entitlement | None) -> SowQuery:
        """Return the query with the rows and fields of an entitlement alone; None is all of them.

        Raises:
            Problem: forbidden.
        """
        if entitlement is None:
            return self
        wanted, select = narrowed_query(entitlement, self.filter, self.order, self.select)
        return replace(self, filter=wanted, select=select)

    async def rows(self, records: Sequence[Frame], topic: str) -> list[Frame]:
        """Return the matching rows of a cut of records; a large cut yields to the loop.

        Ties of an order, and a window without one, are ordered by record key.
        """
        rows = await matching(records, self.filter, topic)
        if self.order is None and self.top_n is None:
            return rows
        rows_max = len(rows) if self.top_n is None else self.skip_n + self.top_n
        return (await _ranked(rows, self.order, rows_max))[self.skip_n :]

    def shown(self, row: Frame) -> Frame:
        """Return a row with the selected fields."""
        if self.select is None:
            return row
        return msgspec.structs.replace(row, payload=self.select.apply(row.payload))


async def matching(records: Sequence[Frame], wanted: Filter | None, topic: str) -> list[Frame]:
    """Return the records that a filter matches, in their order."""
    if wanted is None:
        return list(records)
    matches, found = wanted.matcher(topic), list[Frame]()
    for piece in _pieces(records):
        found += (record for record in piece if matches(record.payload, record.key))
        await asyncio.sleep(0)
    return found


async def _ranked(rows: Sequence[Frame], order: Order | None, rows_max: int) -> list[Frame]:
    """Return the first rows of an order: sorted in pieces, which are then merged."""
    token = order.sort_token if order is not None else _all_alike
    # Sorting all at once would hold the loop; merged runs give the same order.
    runs = []
    for piece in _pieces(rows):
        # The key breaks ties, so that pages of one cut neither repeat nor miss a row.
        runs.append(sorted((token(row.payload), row.key, row) for row in piece))
        await asyncio.sleep(0)
    ranked: list[Frame] = []
    for _, _, row in islice(merge(*runs), rows_max):
        ranked.append(row)
        if len(ranked) % LOOKED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return ranked


def _all_alike(payload: bytes) -> tuple[Any, ...]:
    return ()


def _pieces(rows: Sequence[Frame]) -> Iterator[Sequence[Frame]]:
    return (rows[start : start + LOOKED_AT_ONCE] for start in range(0, len(rows), LOOKED_AT_ONCE))


def _parsed(values: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    text = values.get(name, "")
    if not text.strip():
        return None
    try:
        return parse(text)
    except KeysError as error:
        raise Problem(PARAMETERS[name], f"{error.detail}.", position=error.position) from None


def _count(values: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    if name not in values:
        return None
    return integer(values[name], least=least, most=most, code=PARAMETERS[name], what=name)
