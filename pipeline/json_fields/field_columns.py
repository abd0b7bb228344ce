"""Top-level fields of many JSON objects at once, as slices of the objects' own text.

A number keeps its spelling, so results are as exact as those of one message at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.path import FieldPath
from tidegate.pipeline.intervals import Column
from tidegate.pipeline.json_fields.objects import (
    FIRST_BYTES,
    HIGHEST,
    LOWEST,
    WORD_BYTES,
    Objects,
    padded,
    word_of,
    words_of,
)

# The places of this many objects fit into a core's cache.
OBJECTS_AT_ONCE = 24_000
MISSING = -1
PACKED_MAX = 4 * WORD_BYTES  # texts are packed if none is longer
NULL_BEGINS = ord("n")  # no other JSON value begins with it
LENGTH_MAX = 15  # of a number's text: doubles are distinct for that many digits
LEAST, GREATEST = 1e-13, 1e15  # the range of such texts without an exponent


def top_level(path: FieldPath) -> str | None:
    """Return the name of a top-level field; None for a path that goes deeper or into an array."""
    [first, *deeper] = path.steps
    return first if isinstance(first, str) and not deeper else None


def can_find(name: str) -> bool:
    """Return whether fields of this name are found: its JSON spelling needs no escape."""
    return name != "" and "/" not in name and msgspec.json.encode(name) == b'"%s"' % name.encode()


class Texts(NamedTuple):
    """A JSON text for each of many rows; where `is_there` is false, `values` is undefined.

    `values` are bytes of one length, padded with NUL, which JSON never has; or `bytes` objects.
    """

    values: Column
    is_there: Column

    def joined(self, later: Texts) -> Texts:
        """Return the texts of both, concatenated."""
        return Texts(*map(np.concatenate, zip(self, later, strict=True)))

    def take(self, rows: Column) -> Texts:
        """Return the texts of some rows; a row `MISSING` has no text."""
        # Without any rows, indexing would fail: each row asked for is `MISSING`.
        if not len(self.values):
            return Texts(np.zeros(len(rows), self.values.dtype), np.zeros(len(rows), np.bool_))
        return Texts(self.values[rows], self.is_there[rows] & (rows != MISSING))

    def array(self) -> pa.Array:
        """Return the texts as an array; null where there is none."""
        return pa.array(self.values, pa.binary(), mask=~self.is_there)


@dataclass(frozen=True)
class FieldColumn:
    """One field of `count` objects: which objects have it, and its places in their common text.

    Texts are copied only on request. `text` is longer than the objects by `PADDING` bytes. The JSON
    value null is a text like any other.
    """

    text: Column
    count: int
    homes: Column
    starts: Column
    ends: Column

    @classmethod
    def of_array(cls, texts: pa.Array) -> FieldColumn:
        """Return a field with these texts; null where an object lacks it."""
        text, edges = padded(texts)
        homes = np.flatnonzero(np.asarray(texts.is_valid()))
        return cls(text, len(texts), homes, edges[:-1][homes], edges[1:][homes])

    def among(self, rows: Column, count: int) -> FieldColumn:
        """Return the field of a larger batch of `count` rows, in which `rows` are these objects."""
        return replace(self, count=count, homes=rows[self.homes])

    def only(self, is_kept: Column) -> FieldColumn:
        """Return the field with the other objects lacking it."""
        return self._at(is_kept[self.homes])

    @cached_property
    def without_nulls(self) -> FieldColumn:
        """The field with null counted as missing."""
        return self._at(self.text[self.starts] != NULL_BEGINS)

    @cached_property
    def is_there(self) -> Column:
        """Which objects have the field."""
        return self.spread(np.ones(len(self.homes), np.bool_), np.False_)

    @cached_property
    def slices(self) -> pa.Array:
        """The texts, one after the other, as binary."""
        return slices(self.text, self.starts, self.ends)

    @cached_property
    def texts(self) -> Texts:
        """The texts for each object."""
        lengths = self.ends - self.starts
        longest = int(lengths.max(initial=1))
        if longest > PACKED_MAX:
            found = np.array(self.slices.to_pylist(), np.object_)
            return Texts(self.spread(found, b""), self.is_there)
        words = words_of(self.text)
        width = -(-longest // WORD_BYTES)
        packed = np.empty((len(lengths), width), np.uint64)
        for place in range(width):
            begun = place * WORD_BYTES
            kept = np.clip(lengths - begun, 0, WORD_BYTES)
            # Nothing is kept of a text that ended in an earlier word.
            at = np.minimum(self.starts + begun, len(words) - 1)
            packed[:, place] = words[at] & FIRST_BYTES[kept]
        values = packed.view(f"S{width * WORD_BYTES}")[:, 0]
        return Texts(self.spread(values, np.bytes_()), self.is_there)

    def spread(self, found: Column, missing: object) -> Column:
        """Return one value for each object: `found` has one for each text, others get `missing`."""
        if len(self.homes) == self.count:
            return found
        every = np.full(self.count, missing, found.dtype)
        every[self.homes] = found
        return every

    def _at(self, is_kept: Column) -> FieldColumn:
        if is_kept.all():
            return self
        kept = np.flatnonzero(is_kept)
        homes, starts, ends = self.homes[kept], self.starts[kept], self.ends[kept]
        return FieldColumn(self.text, self.count, homes, starts, ends)


FieldColumns = dict[str, FieldColumn]


def find_fields(bodies: pa.Array, names: Sequence[str]) -> FieldColumns | None:
    """Find top-level fields in objects.

    Args:
        bodies: checked JSON (binary), with or without line breaks; null for none.
        names: the fields' names, for each of which `can_find` is true.

    Returns:
        The field for each name; its texts exclude surrounding white space. If an object repeats a
        name, the last value counts. None if a body is not an object or has an unusual spelling.
    """
    there = bodies.drop_null() if bodies.null_count else bodies
    text, edges = padded(there)
    pieces = []
    for start in range(0, max(1, len(there)), OBJECTS_AT_ONCE):
        found = Objects(text, edges[start : start + OBJECTS_AT_ONCE + 1]).spans(names)
        if found is None:
            return None
        pieces.append([span._replace(homes=span.homes + start) for span in found])
    fields = {
        name: FieldColumn(text, len(there), *map(np.concatenate, zip(*column, strict=True)))
        for name, column in zip(names, zip(*pieces, strict=True), strict=True)
    }
    if len(there) == len(bodies):
        return fields
    rows = np.flatnonzero(np.asarray(bodies.is_valid()))
    return {name: field.among(rows, len(bodies)) for name, field in fields.items()}


def slices(text: Column, starts: Column, ends: Column) -> pa.Array:
    """Return slices of a text, one after the other, as binary."""
    cuts = np.empty(2 * len(starts) + 1, np.int32)
    cuts[:-1:2], cuts[1::2], cuts[-1] = starts, ends, len(text)
    # Every other piece of the text is a slice.
    pieces = pa.Array.from_buffers(
        pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), pa.py_buffer(text)]
    )
    return pieces.take(pa.array(np.arange(0, len(cuts) - 1, 2, dtype=np.int32)))


# --- numbers of texts: of short ones from their bytes, of others by Arrow


def numbers(found: FieldColumn) -> Column | None:
    """Return a field's texts as doubles; None if one is not a number."""
    return _of_each(found, doubles)


def exact_numbers(found: FieldColumn) -> Column | None:
    """Return a double for each object, which compares as its text does; None if one might not.

    NaN where the field is missing.
    """
    each = _of_each(found, _exact)
    return None if each is None else found.spread(each, np.nan)


def _of_each(found: FieldColumn, judge: Callable[[pa.Array], Column | None]) -> Column | None:
    each = _short_decimals(found)
    return judge(found.slices) if each is None else each


_ZEROS, _DOTS = word_of(ord("0")), word_of(ord("."))
_BELOW_TEN = word_of(0x80 - 10)  # more than nine in a byte sets its highest bit
_BITS, _WORD_BITS = np.uint64(8), np.uint64(64)
_FOURTH = np.uint64(0x000000FF000000FF)
_POWERS = np.array([*(10.0**places for places in range(WORD_BYTES - 1, -1, -1)), 1.0])


def _short_decimals(found: FieldColumn) -> Column | None:
    """Return the doubles of texts of at most eight digits and a point; None for other texts.

    All texts are parsed together in a few steps. Each is one word, whose bytes are its characters.
    """
    lengths = found.ends - found.starts
    if lengths.max(initial=0) > WORD_BYTES:
        return None
    bits = lengths.astype(np.uint64) * _BITS
    # The last character is the highest byte; zeros stand before the first one.
    words = (words_of(found.text)[found.starts] << (_WORD_BITS - bits)) | (_ZEROS >> bits)
    odd = words ^ _DOTS
    points = (odd - LOWEST) & ~odd & HIGHEST
    has_points = bool(points.any())
    if has_points:
        ones = points >> np.uint64(7)
        before = ones - np.uint64(1)  # the bytes before the point; all of a text without one
        behind = ~((ones << _BITS) - np.uint64(1))
        # What is before the point moves up by the point.
        moved = (words & behind) | ((words & before) << _BITS) | np.uint64(ord("0"))
        words = np.where(points == 0, words, moved)
    digits = words - _ZEROS
    if (((digits + _BELOW_TEN) | digits) & HIGHEST).any():
        return None
    # Pairs of digits, then two fours of them; all fit into a word.
    pairs = digits * np.uint64(10) + (digits >> _BITS)
    upper = (pairs & _FOURTH) * np.uint64(100 + (1_000_000 << 32))
    lower = ((pairs >> np.uint64(16)) & _FOURTH) * np.uint64(1 + (10_000 << 32))
    whole = ((upper + lower) >> np.uint64(32)).astype(np.float64)
    # Both are exact in a double, so that the quotient is rounded once.
    found_each: Column = whole / _POWERS[np.bitwise_count(before) >> 3] if has_points else whole
    return found_each


def doubles(texts: pa.Array) -> Column | None:
    """Return JSON texts as doubles; None if one is not a number."""
    # Arrow also reads `nan`, which is not JSON, but no JSON value other than a number.
    try:
        return np.asarray(pc.cast(texts.view(pa.string()), pa.float64()))
    except pa.ArrowInvalid:
        return None


def _exact(texts: pa.Array) -> Column | None:
    """Return doubles that compare as their texts do; None if one might not."""
    if not len(texts):
        return np.zeros(0)
    if pc.max(pc.binary_length(texts)).as_py() > LENGTH_MAX:
        return None
    found = doubles(texts)
    if found is None:
        return None
    sizes = np.abs(found)
    is_zero = sizes == 0
    if not (is_zero | ((sizes >= LEAST) & (sizes < GREATEST))).all():
        return None
    if is_zero.any():
        # 1e-999 rounds to 0, but is not equal to it.
        zeros = texts.filter(pa.array(is_zero)).view(pa.string())
        if pc.any(pc.match_substring(zeros, "e", ignore_case=True)).as_py():
            return None
    return found
