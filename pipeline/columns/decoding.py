"""Chosen fields of many lines, decoded in one call, with the verdict of `keys/` on each line.

The readers of Polars, Arrow and DuckDB read a number as a text, round long integers, and take a
second value on a line for the next line. msgspec does not, and validates a line while it finds its
fields, faster than they parse it. What msgspec does not validate is checked here over the text of
all lines. If a check cannot confirm every line, the result is None, and the caller reads line by
line: so both paths accept the same lines, and refusals come from one of them only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.jsontext import DEPTH_MAX, has_large_exponent, has_long_number
from tidegate.keys.path import has_invalid_struct_character
from tidegate.pipeline.intervals import Column

# The objects of so few lines stay in a core's cache until they are columns: a third less time.
LINES_AT_ONCE = 6_000
LINE_BREAK, RETURN, BRACE, CLOSING, BRACKET, ZERO, SMALL_E = b"\n\r{}[0e"
LOWER_CASE = 0x20


@dataclass(frozen=True, slots=True)
class Fields:
    """The decoded fields of many lines: a struct a line, and the attribute of each field in it."""

    records: list[Any]
    attributes: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.records)

    def column(self, name: str) -> list[Any]:
        """Return a field of every line; None where it is missing or null."""
        return list(map(attrgetter(self.attributes[name]), self.records))

    def rows(self, names: Sequence[str]) -> Iterable[Any]:
        """Return some fields of every line: a tuple, or the value alone of a single field."""
        return map(attrgetter(*(self.attributes[name] for name in names)), self.records)


class LineDecoder:
    """Decodes some top-level fields, each of the types that `of` was given, or None."""

    def __init__(self, struct: type[msgspec.Struct], attributes: Mapping[str, str]) -> None:
        self._attributes = attributes
        self._decode = msgspec.json.Decoder(struct).decode_lines

    @classmethod
    def of(cls, kinds: Mapping[str, Any]) -> LineDecoder | None:
        """Return a decoder of these names; None for a name that no struct can have."""
        if any(map(has_invalid_struct_character, kinds)):
            return None
        attributes = {name: f"f{number}" for number, name in enumerate(kinds)}
        fields = [(attributes[name], kind | None, None) for name, kind in kinds.items()]
        renamed = {attribute: name for name, attribute in attributes.items()}
        # Without `gc` a block of lines is no work for the collector: these structs have no cycles.
        return cls(msgspec.defstruct("Fields", fields, rename=renamed, gc=False), attributes)

    def decode(self, lines: pa.Array) -> Fields | None:
        """Return the fields of lines (binary, no nulls), best of `LINES_AT_ONCE`.

        The lines have their breaks, or none has. Return None where one is blank, is not strict
        JSON, is no object, may be deeper than 64 levels, or has another type in one of the fields.
        """
        text = _checked_text(lines)
        if text is None:
            return None
        try:
            records = self._decode(text.content)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        # Values may follow each other on a line, but none continues in the next (`_checked_text`):
        # as many values as lines means one value on each.
        return Fields(records, self._attributes) if len(records) == len(lines) else None


class Text(NamedTuple):
    """Lines one after the other, as bytes, and where each ends, its break included."""

    content: pa.Buffer
    ends: Column


def _checked_text(lines: pa.Array) -> Text | None:
    """Return lines as one text that a decoder may have; None where one is none.

    It is UTF-8, no value continues in the next line, no line may be deeper than 64 levels, and no
    number is beyond a double.
    """
    text = _text(lines)
    if text is None:
        return None
    is_sound = (
        _is_utf8(text.content) and _is_whole(text) and _is_flat(text) and _is_in_range(text.content)
    )
    return text if is_sound else None


def _text(lines: pa.Array) -> Text | None:
    """Return the lines as one text; None if one has a break inside.

    Such a line could pass for two, and make up for a value that needs two.
    """
    count = len(lines)
    if not count:
        return Text(pa.py_buffer(b""), np.zeros(0, np.int64))
    _, offsets, content = lines.buffers()
    edges = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + count + 1]
    text = content[int(edges[0]) : int(edges[-1])]
    ends = edges[1:] - edges[0]
    # Lines that were read from a file lie there with their breaks, and need no copy. The last line
    # of a file may have none.
    inner = np.frombuffer(text, np.uint8)
    breaks = np.count_nonzero(inner == LINE_BREAK)
    if count - 1 <= breaks <= count and (inner[ends[:breaks] - 1] == LINE_BREAK).all():
        # As many breaks as lines that end with one, and each line has an end of its own.
        return Text(text, ends) if (np.diff(ends, prepend=0) > 0).all() else None
    joined = pc.binary_join(pa.ListArray.from_arrays([0, count], lines), b"\n")[0].as_buffer()
    found = np.flatnonzero(np.frombuffer(joined, np.uint8) == LINE_BREAK) + 1
    return Text(joined, np.append(found, joined.size)) if len(found) == count - 1 else None


def _is_utf8(text: pa.Buffer) -> bool:
    # A line break is no part of a UTF-8 sequence: the lines are valid exactly if the text is.
    try:
        str(text, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_whole(text: Text) -> bool:
    """Return whether each line begins and ends with a brace.

    No value continues over `}`, a line break and `{`. Otherwise the second of two values on a line
    could end on the next, and make up for a line that has none.
    """
    content, ends = np.frombuffer(text.content, np.uint8), text.ends
    if not len(ends):
        return True
    starts = np.append(0, ends[:-1])
    if starts[-1] == content.size:  # an empty line at the end
        return False
    last = ends - 1
    for break_ in (LINE_BREAK, RETURN):
        last = last - (content[last] == break_)
    return bool((content[starts] == BRACE).all() and (content[last] == CLOSING).all())


def _is_in_range(text: pa.Buffer) -> bool:
    """Return whether all numbers are doubles, as far as that is seen at once."""
    # msgspec passes over numbers that it does not decode.
    found = np.frombuffer(text, np.uint8)
    has_exponent = ((found[:-1] - ZERO) < 10) & ((found[1:] | LOWER_CASE) == SMALL_E)
    if has_exponent.any() and has_large_exponent(text.to_pybytes()):
        return False
    return not has_long_number(memoryview(text))


def _is_flat(text: Text) -> bool:
    """Return whether no line has more opening brackets than a value may have levels."""
    # msgspec's own limit of depth is the interpreter's stack, which differs from call to call.
    # One bit is all in which the two brackets differ, and no other byte becomes a brace by it.
    opening = (np.frombuffer(text.content, np.uint8) | (BRACE ^ BRACKET)) == BRACE
    # Each other object has a bracket of its own. Most lines are flat, and this says enough.
    if np.count_nonzero(opening) - (len(text.ends) - 1) <= DEPTH_MAX:
        return True
    starts = np.append(0, text.ends[:-1])
    return int(np.add.reduceat(opening, starts, dtype=np.int64).max(initial=0)) <= DEPTH_MAX
