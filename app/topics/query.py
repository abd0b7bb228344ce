"""Queries of the state of the world: which records, in what order, how many, which fields."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from tidegate.app.access.entitlement import narrowed_query
from tidegate.app.access.grants import Entitlement
from tidegate.app.refusals import Refused
from tidegate.app.streams.scheduler import in_turns
from tidegate.app.texts import checked_characters, integer
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Frame
from tidegate.conflation.options.syntax import SKIP_N_MAX, TOP_N_MAX
from tidegate.conflation.steps import Steps, in_pieces, sorted_in_steps
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
# These bound how long streams wait for a query. A filter may take 100 times as long as another one,
# which is not known before: so the first step has few records, and its time decides how many the
# next one has.
EXAMINED_AT_ONCE = 500
COPIED_AT_ONCE: Final = 10_000  # where there is no filter to try
EXAMINED_FIRST: Final = 10
STEP_S: Final = 0.001
CLOCK_S: Final = 1e-6  # some clocks go in steps, between which no time passes

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
            Refused: filter-invalid or options-invalid, with the position in the parameter.
        """
        for name in ("filter", "order_by", "select"):
            checked_characters(values.get(name, ""), characters_max, PARAMETERS[name], name)
            # Refused and not ignored: the answer would look as if it had been filtered.
            if values.get(name) and kind in (Kind.TEXT, Kind.BINARY):
                raise Refused(PARAMETERS[name], f"{name} needs messages with fields.", position=0)
        if "skip_n" in values and "top_n" not in values:
            raise Refused("options-invalid", "skip_n needs top_n.")
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
            Refused: forbidden.
        """
        if entitlement is None:
            return self
        wanted, select = narrowed_query(entitlement, self.filter, self.order, self.select)
        return replace(self, filter=wanted, select=select)

    async def rows(self, records: Sequence[Frame], topic: str) -> list[Frame]:
        """Return the matching rows of a cut of records; a large cut yields to the loop.

        Tombstones among the records are no rows. Ties of an order, and a window without one, are
        ordered by record key.
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
    """Return the records that a filter matches, in their order; tombstones are none."""
    if wanted is None:
        pieces = in_pieces(records, COPIED_AT_ONCE, _present)
        return await in_turns(pieces)
    matches = wanted.matcher(topic)

    def matching_in(piece: Sequence[Frame]) -> list[Frame]:
        return [each for each in _present(piece) if matches(each.payload, each.key)]

    return await in_turns(_in_timed_pieces(records, matching_in))


def _in_timed_pieces(
    records: Sequence[Frame], look: Callable[[Sequence[Frame]], list[Frame]]
) -> Steps[list[Frame]]:
    """Return what `look` finds in records, given in pieces that take a millisecond or two."""
    found: list[Frame] = []
    clock_s = asyncio.get_running_loop().time
    start, size = 0, EXAMINED_FIRST
    while start < len(records):
        if start:
            yield
        began_s = clock_s()
        found += look(records[start : start + size])
        start += size
        taken_s = max(CLOCK_S, clock_s() - began_s)
        # Not more than doubled: the next records may be longer than these.
        size = max(1, min(EXAMINED_AT_ONCE, 2 * size, int(size * STEP_S / taken_s)))
    return found


def _present(frames: Sequence[Frame]) -> list[Frame]:
    return [frame for frame in frames if not frame.removed]


async def _ranked(rows: Sequence[Frame], order: Order | None, rows_max: int) -> list[Frame]:
    """Return the first rows of an order: sorted in pieces, which are then merged."""
    token = order.sort_token if order is not None else _all_alike

    def rank_of(row: Frame) -> tuple[Any, str]:
        # The key breaks ties, so that pages of one cut neither repeat nor miss a row.
        return token(row.payload), row.key

    return await in_turns(sorted_in_steps(rows, rank_of, EXAMINED_AT_ONCE, rows_max))


def _all_alike(payload: bytes) -> tuple[Any, ...]:
    return ()


def _parsed(values: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    text = values.get(name, "")
    if not text.strip():
        return None
    try:
        return parse(text)
    except KeysError as error:
        raise Refused(PARAMETERS[name], f"{error.detail}.", position=error.position) from None


def _count(values: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    if name not in values:
        return None
    return integer(values[name], least=least, most=most, code=PARAMETERS[name], what=name)
