"""Messages with results of reducers in them, written many at once.

A *shape* is the names of an object's fields, in order. Most batches have few shapes. All objects of
one shape are written together, column by column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.reducers import Reduce
from tidegate.pipeline.intervals import Column
from tidegate.pipeline.json_fields.field_columns import OBJECTS_AT_ONCE, can_find, slices
from tidegate.pipeline.json_fields.objects import BACKSLASH, CLOSE, QUOTE, SPACE, Objects, padded

SHAPES_MAX = 64  # the objects of further shapes are written one by one: they are few
NUMBER_MAX = 2**62
NOTHING = pa.scalar(b"")


class Writer:
    """Writes the results of reducers into messages, as `Reduce.payload` does one by one."""

    def __init__(self, reduce: Reduce) -> None:
        self._reduce = reduce
        targets = [column.target for column in reduce.columns]
        # A result inside a field is written one by one.
        self._is_flat = all(len(target) == 1 and can_find(target[0]) for target in targets)
        self._targets = [msgspec.json.encode(target[0]) for target in targets]

    def written(self, last: pa.Array, results: Sequence[pa.Array]) -> pa.Array:
        """Return messages (null where there is none) with the results of all columns."""
        if self._reduce.is_plain or not len(last):
            return last
        there = pa.array(np.flatnonzero(np.asarray(last.is_valid())))
        bodies, shown = last.take(there), [result.take(there) for result in results]
        pieces = [
            self._piece(*(each.slice(start, OBJECTS_AT_ONCE) for each in (bodies, *shown)))
            for start in range(0, len(bodies), OBJECTS_AT_ONCE)
        ]
        places = np.full(len(last), -1)
        places[np.asarray(there)] = np.arange(len(there))
        found = pa.concat_arrays([pa.array([], pa.binary()), *pieces])
        return found.take(pa.array(places, mask=places < 0))

    def _piece(self, bodies: pa.Array, *results: pa.Array) -> pa.Array:
        objects = Objects(*padded(bodies))
        if self._is_flat and not objects.may_have(self._targets):
            return self._longer(bodies, *results)
        shapes = _Shapes.of(objects) if self._is_flat else None
        if shapes is None:
            return self._one_by_one(bodies, *results)
        pieces: list[pa.Array] = []
        order: list[Column] = []
        longer: list[Column] = []
        for names, rows, cells in shapes.together():
            if not {*names}.isdisjoint(self._targets):
                chosen = [result.take(pa.array(rows)) for result in results]
                pieces.append(self._of_shape(names, shapes.values(cells), chosen))
                order.append(rows)
            else:
                longer.append(rows)
        for write, rows in ((self._longer, _joined(longer)), (self._one_by_one, shapes.rest)):
            if len(rows) == len(bodies):
                return write(bodies, *results)
            few = pa.array(rows)
            pieces.append(write(bodies.take(few), *(result.take(few) for result in results)))
            order.append(rows)
        return pa.concat_arrays(pieces).take(pa.array(np.argsort(_joined(order))))

    def _longer(self, bodies: pa.Array, *results: pa.Array) -> pa.Array:
        """Append the results to objects that have no white space and no field of these names."""
        return _object([pc.binary_slice(bodies, 0, -1)], zip(self._targets, results, strict=True))

    def _one_by_one(self, bodies: pa.Array, *results: pa.Array) -> pa.Array:
        rows = zip(bodies.to_pylist(), *(result.to_pylist() for result in results), strict=True)
        return pa.array([self._reduce.payload(last, shown) for last, *shown in rows], pa.binary())

    def _of_shape(
        self, names: Sequence[bytes], values: Sequence[pa.Array], results: Sequence[pa.Array]
    ) -> pa.Array:
        """Return objects of these fields and results; a result replaces a field of its name."""
        fields = dict(zip(names, values, strict=True)) | dict(
            zip(self._targets, results, strict=True)
        )
        found = _object([pa.scalar(b"{")], fields.items())
        # Each field begins with a comma, unless all results are null and no field remains.
        return pc.replace_substring(found, b"{,", b"{", max_replacements=1)


def _object(
    begins: list[pa.Array | pa.Scalar], fields: Iterable[tuple[bytes, pa.Array]]
) -> pa.Array:
    """Append fields to the begun objects and close them; a null value leaves its field out."""
    parts = [*begins]
    for name, value in fields:
        start = pa.scalar(b",%s:" % name)
        # Null where its value is.
        alone = [pc.binary_join_element_wise(start, value, NOTHING)]
        parts += alone if value.null_count else [start, value]
    return pc.binary_join_element_wise(
        *parts, pa.scalar(b"}"), NOTHING, null_handling="replace", null_replacement=""
    )


def _joined(rows: list[Column]) -> Column:
    return np.concatenate([np.zeros(0, np.int64), *rows])


class _Shapes:
    """Objects grouped by shape; the objects `rest` are written one by one.

    Those contain white space, an escape, or a name twice.
    """

    def __init__(self, objects: Objects, edges: Column, plain: Column) -> None:
        text = objects.text
        self._plain = plain
        is_field = text[edges] != CLOSE
        places = np.flatnonzero(is_field)
        homes = np.cumsum(~is_field)[places]
        # Only plain objects are divided into fields.
        kept = plain[homes]
        places, homes = places[kept], homes[kept]
        at, ends = edges[places] + 1, edges[places + 1]
        quotes = np.flatnonzero(text == QUOTE)
        colons = quotes[np.searchsorted(quotes, at) + 1] + 1
        self._text, self._starts, self._ends = text, colons + 1, ends
        encoded = slices(text, at, colons).dictionary_encode()
        self._names: list[bytes] = encoded.dictionary.to_pylist()
        self._codes = np.asarray(encoded.indices).astype(np.int64)
        self._first, self._counts = np.unique(homes, return_index=True, return_counts=True)[1:]
        self._rows = homes[self._first]
        self.rest = np.flatnonzero(~plain)

    @classmethod
    def of(cls, objects: Objects) -> _Shapes | None:
        """Return the shapes of objects; None if the objects cannot be divided into fields."""
        starts = objects.starts
        if not objects.are_objects:
            return None
        is_odd = (objects.own <= SPACE) | (objects.own == BACKSLASH)
        odd = np.logical_or.reduceat(is_odd, starts) if len(starts) else is_odd[:0]
        # An empty object has no field to find.
        plain = ~odd & (objects.closes - starts > 1)
        commas = objects.outer_commas()
        return None if commas is None else cls(objects, objects.edges(commas), plain)

    def values(self, cells: Column) -> list[pa.Array]:
        """Return the texts of some cells, a column for each name."""
        return [slices(self._text, self._starts[each], self._ends[each]) for each in cells.T]

    def together(self) -> list[tuple[list[bytes], Column, Column]]:
        """Return the names of each shape, the objects of it, and cells: a column for each name."""
        found: list[tuple[list[bytes], Column, Column]] = []
        rest = [self.rest]
        for count in np.unique(self._counts).tolist():
            alike = np.flatnonzero(self._counts == count)
            if len(self._names) ** count > NUMBER_MAX:  # more names than shapes can have in common
                rest.append(self._rows[alike])
                continue
            cells = self._first[alike][:, None] + np.arange(count)
            # A shape as one number, whose digits are the codes of its names.
            digits = len(self._names) ** np.arange(count)
            number = self._codes[cells] @ digits
            order = np.argsort(number, kind="stable")
            cuts = np.flatnonzero(np.diff(number[order], prepend=-1, append=-1))
            for low, high in pairwise(cuts.tolist()):
                chosen = order[low:high]
                rows = self._rows[alike[chosen]]
                shape = self._codes[cells[chosen[0]]].tolist()
                if len(set(shape)) < count or len(found) == SHAPES_MAX:
                    rest.append(rows)
                    continue
                found.append(([self._names[code] for code in shape], rows, cells[chosen]))
        self.rest = np.concatenate(rest)
        return found
