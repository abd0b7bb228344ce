"""Finds the places of fields in the text of many objects.

The objects are valid JSON, so a few bytes show where a field begins: outside strings, a comma is
always followed by the next name. Names with escapes and white space in unusual places are not
handled: the result is None, and the caller reads message by message.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations, pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.pipeline.intervals import Column

WORD_BYTES = 8
PADDING = 2 * WORD_BYTES
FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES + 1)], np.uint64)
LINE_FEED, RETURN, SPACE, QUOTE, COMMA, COLON, BACKSLASH, OPEN, CLOSE = b'\n\r ",:\\{}'
_BRACKET = OPEN ^ ord("[")  # the one bit in which a brace and a bracket differ, open or closed
_IS_MARK = np.zeros(256, np.bool_)
_IS_MARK[[*b'",{}[]']] = True
COLUMNS_MAX = 32  # of names that are compared with each other


def word_of(byte: int) -> np.uint64:
    """Return a word with this byte repeated."""
    return np.uint64(int.from_bytes(bytes([byte]) * WORD_BYTES))


LOWEST, HIGHEST = word_of(0x01), word_of(0x80)
_QUOTES = word_of(QUOTE)


def padded(bodies: pa.Array) -> tuple[Column, Column]:
    """Return the bytes of an array, longer by `PADDING`, and where each of its values begins.

    The last place is where the last value ends.
    """
    _, offsets, content = bodies.buffers()
    edges = np.frombuffer(offsets or b"", np.int32)[bodies.offset : bodies.offset + len(bodies) + 1]
    if content is None or not len(edges):
        return np.zeros(PADDING, np.uint8), np.zeros(len(bodies) + 1, np.int64)
    text = np.frombuffer(content, np.uint8)[edges[0] : edges[-1]]
    return np.append(text, np.zeros(PADDING, np.uint8)), edges.astype(np.int64) - edges[0]


def words_of(text: Column) -> Column:
    """Return the word at every place of a text, as a view."""
    words: Column = np.ndarray((len(text) - WORD_BYTES + 1,), "<u8", text, strides=(1,))
    return words


class Spans(NamedTuple):
    """The places of one field: the indices of the objects, and the bounds of its texts."""

    homes: Column
    starts: Column
    ends: Column


class Objects:
    """Consecutive objects in a text, with the places of their opening and closing braces."""

    def __init__(self, text: Column, edges: Column) -> None:
        self.text = text
        self.begin = int(edges[0])
        self.own = text[self.begin : edges[-1]]
        self.starts = edges[:-1]
        self.closes = edges[1:] - 1
        for line_break in (LINE_FEED, RETURN):
            self.closes = self.closes - (text[self.closes] == line_break)
        breaks = len(self.own) - len(self.starts) - int((self.closes - self.starts).sum())
        self.has_space = np.count_nonzero(self.own <= SPACE) > breaks

    @property
    def are_objects(self) -> bool:
        """Whether each text begins and ends with a brace."""
        braces = (self.text[self.starts] == OPEN) & (self.text[self.closes] == CLOSE)
        return bool((braces & (self.closes > self.starts)).all())

    @cached_property
    def has_escapes(self) -> bool:
        """Whether a string may be spelled with an escape."""
        return bool((self.own == BACKSLASH).any())

    @property
    def are_flat(self) -> bool:
        """Whether all are objects that contain no array, object or escape."""
        brackets = np.count_nonzero((self.own | _BRACKET) == (OPEN | _BRACKET))
        return self.are_objects and brackets == len(self.starts) and not self.has_escapes

    def all_commas(self) -> Column:
        """Return the places of all commas: in flat objects, between fields or in strings."""
        return np.flatnonzero(self.own == COMMA) + self.begin

    def may_have(self, names: Sequence[bytes]) -> bool:
        """Return whether one may have a name twice, or one of these (quoted), or an odd spelling.

        It is judged by the first letters of names.
        """
        if self.has_space or not self.are_flat:
            return True
        columns = self.columns(self.all_commas())
        if len(columns) > COLUMNS_MAX or len(columns[0].homes) > len(self.starts):
            return True
        words = [words_of(self.text)[column.starts] for column in columns]
        if not all((word.astype(np.uint8) == QUOTE).all() for word in words):
            return True
        found = [_names_of(word) for word in words]
        wanted = _names_of(np.array([int.from_bytes(name[:8], "little") for name in names], "<u8"))
        is_twice = any((one == other).any() for one, other in combinations(found, 2))
        return is_twice or any((one == name).any() for one in found for name in wanted)

    def spans(self, names: Sequence[str]) -> list[Spans] | None:
        """Return the places of fields in the text, as `find_fields` does."""
        if self.are_flat:
            # Every comma: those inside strings are detected where they make a difference.
            found = self.named(self.columns(self.all_commas()), names)
            if found is not None:
                return found
        outer = self.outer_commas() if self.are_objects else None
        return None if outer is None else self.named(self.columns(outer), names)

    def outer_commas(self) -> Column | None:
        """Return where commas between fields stand, by quotes and depth.

        None if a name may be spelled with an escape.
        """
        text = self.own
        if self.has_escapes:
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
        outer: Column = marks[commas & (depth == 1)] + self.begin
        return outer

    def edges(self, commas: Column) -> Column:
        """Return the places of braces and of these commas, in order."""
        is_edge = np.zeros(len(self.own), np.bool_)
        for found in (self.starts, commas, self.closes):
            is_edge[found - self.begin] = True
        return np.flatnonzero(is_edge) + self.begin

    def columns(self, commas: Column) -> list[Spans]:
        """Return the fields that these commas separate, names included.

        If objects have equally many fields: the first field of each, then the second, and so on.
        """
        count = len(self.starts)
        each, rest = divmod(len(commas), max(1, count))
        if not rest:
            places = commas.reshape(count, each).T
            if not ((places[:1] <= self.starts) | (places[-1:] >= self.closes)).any():
                homes = np.arange(count)
                pairs = pairwise([self.starts, *places, self.closes])
                return [Spans(homes, begins + 1, ends) for begins, ends in pairs]
        edges = self.edges(commas)
        is_close = self.text[edges] == CLOSE
        begins = np.flatnonzero(~is_close)
        return [Spans(np.cumsum(is_close)[begins], edges[begins] + 1, edges[begins + 1])]

    def named(self, columns: Sequence[Spans], names: Sequence[str]) -> list[Spans] | None:
        """Return the fields of these names among `columns`; None for an unusual spelling."""
        text, words = self.text, words_of(self.text)
        quoted = [*map(msgspec.json.encode, names)]
        found: list[list[Spans]] = [[] for _ in names]
        for homes, at, ends in columns:
            if self.has_space:
                at = at + (text[at] == SPACE)
            begun = words[at]
            if not (begun.astype(np.uint8) == QUOTE).all():
                return None
            # Usually all have the same name, or at least the same first letters.
            are_alike = bool((begun == begun[:1]).all())
            left = len(homes)  # one name for each
            for name, spans in zip(quoted, found, strict=True):
                if are_alike and not _begin_with(begun[:1], name[:WORD_BYTES]).all():
                    continue
                hits = np.flatnonzero(_begin_with(begun, name[:WORD_BYTES]))
                for start in range(WORD_BYTES, len(name), WORD_BYTES):
                    # A name longer than the padding could be read beyond the end of the text.
                    places = np.minimum(at[hits] + start, len(words) - 1)
                    hits = hits[_begin_with(words[places], name[start : start + WORD_BYTES])]
                if not len(hits):
                    continue
                left -= len(hits)
                chosen = hits if len(hits) < len(homes) else slice(None)
                colons = at[chosen] + len(name)
                span = Spans(homes[chosen], colons + 1, ends[chosen])
                if self.has_space:
                    span = self._without_spaces(span)
                if not (text[colons] == COLON).all() or not self._are_whole(span):
                    return None
                spans.append(span)
                if not left:
                    break
        return [*map(_last_of_each, found)]

    def _without_spaces(self, span: Spans) -> Spans:
        starts = span.starts + (self.text[span.starts] == SPACE)
        return Spans(span.homes, starts, span.ends - (self.text[span.ends - 1] == SPACE))

    def _are_whole(self, span: Spans) -> bool:
        """Return whether each value is complete and has no white space around it."""
        first = self.text[span.starts]
        is_string = first == QUOTE
        if not self.has_space and not is_string.any():
            return True
        last = self.text[span.ends - 1]
        # A string that was cut at a comma inside it does not end with a quote.
        is_long = span.ends - span.starts > 1
        if not (~is_string | ((last == QUOTE) & is_long)).all():
            return False
        return bool((first > SPACE).all() and (last > SPACE).all())


def _last_of_each(pieces: Sequence[Spans]) -> Spans:
    """Return the last field of each object, where later pieces have later fields."""
    if len(pieces) == 1 and not (pieces[0].homes[1:] == pieces[0].homes[:-1]).any():
        return pieces[0]
    none = Spans(*[np.zeros(0, np.int64)] * 3)
    found = Spans(*map(np.concatenate, zip(none, *pieces, strict=True)))
    order = np.argsort(found.homes, kind="stable")
    homes = found.homes[order]
    last = order[np.append(homes[1:] != homes[:-1], True)[: len(homes)]]
    return Spans(*(column[last] for column in found))


def _names_of(words: Column) -> Column:
    """Return words that begin with a quote, each with what is up to the next one."""
    odd = (words | np.uint64(1)) ^ _QUOTES  # the first quote is none of those that are looked for
    ends = (odd - LOWEST) & ~odd & HIGHEST
    lowest = ends & (~ends + np.uint64(1))
    kept: Column = words & ((lowest << np.uint64(1)) - np.uint64(1))
    return kept


def _begin_with(words: Column, wanted: bytes) -> Column:
    """Return which words begin with at most eight bytes, the first of which is the lowest."""
    word = int.from_bytes(wanted, "little")
    if len(wanted) < WORD_BYTES:
        words = words & FIRST_BYTES[len(wanted)]
    begins: Column = words == np.uint64(word)
    return begins
