"""Members of many objects at once, as slices of the objects' own text.

A number keeps its spelling, so what is computed from it is as exact as from a single message. The
objects are checked JSON, which is why few bytes say where a member begins: outside strings a comma
is followed by nothing but the next name. Where that is not enough (a name that is spelled with an
escape, white space in odd places) there is no answer, and the caller reads message by message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.path import FieldPath
from tidegate.pipeline.intervals import Column

# Places of so few objects stay in a core's cache.
OBJECTS_AT_ONCE = 6_000
WORD_BYTES = 8
PADDING = 2 * WORD_BYTES
MISSING = -1
NULL = pa.scalar(b"null")
LINE_FEED, RETURN, SPACE, QUOTE, COMMA, COLON, BACKSLASH, OPEN, CLOSE = b'\n\r ",:\\{}'
_BRACKET = OPEN ^ ord("[")  # the one bit in which a brace and a bracket differ, open or closed
_IS_MARK = np.zeros(256, np.bool_)
_IS_MARK[[*b'",{}[]']] = True


def top_level(path: FieldPath) -> str | None:
    """Return the name of a top-level field; None for a path that goes deeper or into an array."""
    [first, *deeper] = path.steps
    return first if isinstance(first, str) and not deeper else None


def can_find(name: str) -> bool:
    """Return whether members of this name are found: its JSON spelling needs no escape."""
    return name != "" and "/" not in name and msgspec.json.encode(name) == b'"%s"' % name.encode()


class Texts(NamedTuple):
    """The texts of one member in many objects: `values`, and the place of each object's in them.

    The place is `MISSING` where the member is missing. A null has the text `null`.
    """

    values: pa.Array
    places: Column

    @classmethod
    def of_array(cls, texts: pa.Array) -> Texts:
        """Return an array with nulls for what is missing."""
        is_there = np.asarray(texts.is_valid())
        return cls(texts.drop_null(), np.where(is_there, np.cumsum(is_there) - 1, MISSING))

    def joined(self, later: Texts) -> Texts:
        """Return both, one after the other."""
        shifted = np.where(later.places == MISSING, MISSING, later.places + len(self.values))
        values = pa.concat_arrays([self.values, later.values])
        return Texts(values, np.concatenate([self.places, shifted]))

    def take(self, rows: Column) -> Texts:
        """Return those of some objects; `MISSING` for an object without one."""
        places = np.where(rows == MISSING, MISSING, self.places[rows])
        # Of a few the others' bytes need not stay; many are not worth a copy.
        if 2 * len(rows) > len(self.values):
            return Texts(self.values, places)
        is_there = places != MISSING
        values = self.values.take(pa.array(places[is_there]))
        return Texts(values, np.where(is_there, np.cumsum(is_there) - 1, MISSING))

    def without(self, is_dropped: pa.Array) -> Texts:
        """Return them without some of the values."""
        if not pc.any(is_dropped).as_py():
            return self
        dropped = np.append(np.asarray(is_dropped), False)  # the last for MISSING, which is -1
        return Texts(self.values, np.where(dropped[self.places], MISSING, self.places))

    def array(self) -> pa.Array:
        """Return them as an array with nulls for what is missing."""
        return self.values.take(pa.array(self.places, mask=self.places == MISSING))


class Spans(NamedTuple):
    """Where one member stands: in which objects, and its text from `starts` to `ends`."""

    homes: Column
    starts: Column
    ends: Column


@dataclass(frozen=True, slots=True)
class Members:
    """Some members of many objects: where each stands in the text of all of them.

    Only the texts that are asked for are ever copied.
    """

    text: Column
    count: int
    spans: Mapping[str, Spans]

    def texts(self, name: str, chosen: Column | None = None) -> Texts:
        """Return the texts of a member in the chosen objects; it is missing in all others."""
        homes, starts, ends = self.spans[name]
        if chosen is not None:
            kept = np.flatnonzero(chosen[homes])
            homes, starts, ends = homes[kept], starts[kept], ends[kept]
        places = np.full(self.count, MISSING)
        places[homes] = np.arange(len(homes))
        return Texts(slices(self.text, starts, ends), places)

    def among(self, rows: Column, count: int) -> Members:
        """Return the same where the objects are some rows of more."""
        spans = {name: each._replace(homes=rows[each.homes]) for name, each in self.spans.items()}
        return Members(self.text, count, spans)


def members_of(bodies: pa.Array, names: Sequence[str]) -> Members | None:
    """Return where some members of objects stand.

    Args:
        bodies: checked JSON (binary), with or without line breaks; null for none.
        names: those of the members, each of which `can_find`.

    Returns:
        For each name the places of its texts, without the white space around them. Of members of
        one name the last counts. None where a body is no object, or is spelled in an odd way.
    """
    there = bodies.drop_null() if bodies.null_count else bodies
    pieces = []
    for start in range(0, max(1, len(there)), OBJECTS_AT_ONCE):
        objects = Objects(there.slice(start, OBJECTS_AT_ONCE))
        found = objects.spans(names)
        if found is None:
            return None
        begin = objects.begin
        placed = [Spans(homes + start, *(it + begin for it in ends)) for homes, *ends in found]
        pieces.append(placed)
    columns = [
        Spans(*(np.concatenate(each) for each in zip(*column, strict=True)))
        for column in zip(*pieces, strict=True)
    ]
    spans = dict(zip(names, columns, strict=True))
    members = Members(content_of(there), len(there), spans)
    if len(there) == len(bodies):
        return members
    return members.among(np.flatnonzero(np.asarray(bodies.is_valid())), len(bodies))


def content_of(bodies: pa.Array) -> Column:
    """Return the bytes of an array, those before its own and behind them too."""
    content = bodies.buffers()[2]
    return _NO_TEXT if content is None else np.frombuffer(content, np.uint8)


def doubles(texts: pa.Array) -> Column | None:
    """Return JSON texts as numbers, nulls as NaN; None where one is another value."""
    # Arrow reads more than JSON has, such as `nan`, but no other JSON value. Both round correctly.
    try:
        return np.asarray(pc.cast(texts.view(pa.string()), pa.float64()))
    except pa.ArrowInvalid:
        pass  # nulls, or no numbers
    numbers = pc.if_else(pc.equal(texts, NULL), pa.scalar(None, pa.binary()), texts)
    try:
        found = pc.cast(numbers.view(pa.string()), pa.float64())
    except pa.ArrowInvalid:
        return None
    every: Column = found.to_numpy(zero_copy_only=False)
    return every


class Objects:
    """The text of some objects, one after the other; where each starts, and its closing brace.

    `begin` is where the text begins in that of the array.
    """

    def __init__(self, bodies: pa.Array) -> None:
        offsets = np.frombuffer(bodies.buffers()[1], np.int32)
        edges = offsets[bodies.offset : bodies.offset + len(bodies) + 1].astype(np.int64)
        text = content_of(bodies)[edges[0] : edges[-1]]
        self.begin = int(edges[0])
        # Longer: a word may be read at every place.
        self.text = np.append(text, np.zeros(PADDING, np.uint8))
        self.starts = edges[:-1] - edges[0]
        self.closes = edges[1:] - edges[0] - 1
        for line_break in (LINE_FEED, RETURN):
            self.closes = self.closes - (self.text[self.closes] == line_break)

    @property
    def are_objects(self) -> bool:
        """Whether each begins and ends as an object does."""
        braces = (self.text[self.starts] == OPEN) & (self.text[self.closes] == CLOSE)
        return bool((braces & (self.closes > self.starts)).all())

    def spans(self, names: Sequence[str]) -> list[Spans] | None:
        """Return where members stand in the text, as `members_of` does."""
        text, starts = self.text, self.starts
        if not self.are_objects:
            return None
        has_escapes = bool((text == BACKSLASH).any())
        is_flat = np.count_nonzero((text | _BRACKET) == (OPEN | _BRACKET)) == len(starts)
        if is_flat and not has_escapes:
            # Every comma: one inside a string is found out where it makes a difference.
            found = self._cut(text == COMMA, names)
            if found is not None:
                return found
        outer = self.outer_commas(has_escapes=has_escapes)
        return None if outer is None else self._cut(outer, names)

    def outer_commas(self, *, has_escapes: bool) -> Column | None:
        """Return which bytes are commas between members, by quotes and depth.

        None if a name may be spelled with an escape.
        """
        text = self.text
        if has_escapes:
            spelled = text.tobytes()
            # Other escapes spell no character of a name that `can_find` lets pass.
            if b"\\u" in spelled:
                return None
            # Pairs from the left: behind them each quote begins or ends a string.
            spelled = spelled.replace(b"\\\\", b"__").replace(b'\\"', b"__")
            text = np.frombuffer(spelled, np.uint8)
        marks = np.flatnonzero(_IS_MARK[text])
        kinds = text[marks]
        quotes = kinds == QUOTE
        is_outside = ~quotes & (np.cumsum(quotes) & 1 == 0)
        marks, kinds = marks[is_outside], kinds[is_outside]
        commas = kinds == COMMA
        steps = np.where((kinds | _BRACKET) == (OPEN | _BRACKET), 1, -1)
        depth = np.cumsum(np.where(commas, 0, steps))
        outer = np.zeros(len(text), np.bool_)
        outer[marks[commas & (depth == 1)]] = True
        return outer

    def _cut(self, is_edge: Column, names: Sequence[str]) -> list[Spans] | None:
        """Return where members stand, with these commas between them; None for odd spellings."""
        text = self.text
        is_edge[self.starts] = True
        is_edge[self.closes] = True
        edges = np.flatnonzero(is_edge)
        ends_object = text.take(edges) == CLOSE
        at = edges + 1
        has_spaces = bool((text == SPACE).any())
        if has_spaces:
            at += text.take(at) == SPACE
        if not ((text.take(at) == QUOTE) | ends_object).all():
            return None
        homes = np.cumsum(ends_object)
        # Two letters tell most names apart. Words are read for the few that are left, as a word
        # at any place costs more than all else.
        letters = text.take(at + 1) + text.take(at + 2).astype(np.uint16) * 256
        words = _words(text)
        columns = []
        for quoted in map(msgspec.json.encode, names):
            found = np.flatnonzero(letters == quoted[1] + 256 * quoted[2])
            for start in range(0, len(quoted), WORD_BYTES):
                # Names longer than the padding may lead behind the text, where no name goes on.
                places = np.minimum(at[found] + start, len(words) - 1)
                found = found[_begin_with(words[places], quoted[start : start + WORD_BYTES])]
            colons = at[found] + len(quoted)
            starts, ends = colons + 1, edges[found + 1]
            if has_spaces:
                starts += text[starts] == SPACE
                ends -= text[ends - 1] == SPACE
            if not (text[colons] == COLON).all() or not self._are_whole(starts, ends):
                return None
            columns.append(_last_of_each(Spans(homes[found], starts, ends)))
        return columns

    def _are_whole(self, starts: Column, ends: Column) -> bool:
        """Return whether each value has all of its text, and no white space around it."""
        first, last = self.text[starts], self.text[ends - 1]
        is_string = first == QUOTE
        # A string that a comma has cut does not end with its quote.
        if is_string.any() and not (~is_string | ((last == QUOTE) & (ends - starts > 1))).all():
            return False
        return bool((first > SPACE).all() and (last > SPACE).all())


def _last_of_each(found: Spans) -> Spans:
    homes = found.homes
    if not (homes[1:] == homes[:-1]).any():
        return found
    is_last = np.append(homes[1:] != homes[:-1], True)
    return Spans(*(column[is_last] for column in found))


def slices(text: Column, starts: Column, ends: Column) -> pa.Array:
    """Return slices of a text, one after the other, as binary."""
    cuts = np.empty(2 * len(starts) + 1, np.int32)
    cuts[:-1:2], cuts[1::2], cuts[-1] = starts, ends, len(text)
    # Every other piece of the text is a slice.
    pieces = pa.Array.from_buffers(
        pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), pa.py_buffer(text)]
    )
    return pieces.take(pa.array(np.arange(0, len(cuts) - 1, 2, dtype=np.int32)))


_NO_TEXT = np.zeros(0, np.uint8)


def _begin_with(words: Column, wanted: bytes) -> Column:
    """Return which words begin with at most eight bytes, the first of which is the lowest."""
    word = int.from_bytes(wanted, "little")
    if len(wanted) < WORD_BYTES:
        words = words & np.uint64((1 << 8 * len(wanted)) - 1)
    begins: Column = words == np.uint64(word)
    return begins


def _words(text: Column) -> Column:
    """Return the word at every place of a text, as a view."""
    words: Column = np.ndarray((len(text) - WORD_BYTES + 1,), "<u8", text, strides=(1,))
    return words
