"""Lines whose key stands in front: few beginnings, each read once, and the rest of each line.

A line is cut at a comma. If both halves are objects by themselves, with a brace more each, then the
line is one object with the fields of both; so the place of the cut may be a
guess. The first half, the *head*, has the key, and the same few heads come again and again: a
look-up finds the code of each. The second half, the *tail*, is decoded as a whole line would be.
Where one line differs there is no answer, and the caller decodes whole lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.keys.errors import KeysError
from tidegate.keys.jsontext import check_json, members
from tidegate.pipeline.columns.decoding import LINES_AT_ONCE, LineDecoder, checked_text
from tidegate.pipeline.intervals import Column
from tidegate.pipeline.members.objects import PADDING, QUOTE, SPACE, Objects, Spans
from tidegate.pipeline.members.texts import Member, Members, can_find

BRACE = ord("{")
# A head that is new costs as much as some lines: many of them are no beginnings that come again.
NEW_HEADS_MAX = 1 / 16
FAILURES_MAX = 4
# Bounds on what a hostile line costs: each comma is tried with all before it, and heads are kept.
HEAD_BYTES_MAX = 1_024
HEADS_MAX = 65_536
# No value has this type, null neither: a tail with a field of the key is no tail.
_NO_VALUE = Annotated[int, msgspec.Meta(ge=1, le=0)]


@dataclass(frozen=True, slots=True)
class Columns:
    """Decoded fields of many lines by name, or where they and other members stand."""

    columns: Mapping[str, list[Any]]
    members: Members

    def column(self, name: str) -> list[Any]:
        """Return a field of every line; None where it is missing or null."""
        return self.columns[name]


class HeadDecoder:
    """Decodes lines by heads; `code_of` gives the code of the key in an object.

    It gives up after some failures, for the rest of its task. `wanted` are names of members that
    are found instead of decoded, where all lines are flat and have as many; then `checks` decodes
    nothing else.
    """

    def __init__(
        self,
        names: Sequence[str],
        code_of: Callable[[bytes], int],
        tails: LineDecoder,
        checks: LineDecoder,
        wanted: Sequence[str],
    ) -> None:
        self._names = frozenset(names)
        self._code_of = code_of
        self._tails = tails
        self._checks = checks
        self._wanted = wanted
        self._are_in_heads = False
        self._codes: dict[bytes, int] = {}
        self._commas = 0
        self._failures = 0

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        code_of: Callable[[bytes], int],
        kinds: Mapping[str, Any],
        others: Sequence[str] = (),
    ) -> HeadDecoder | None:
        """Return a decoder of fields of these kinds; None if one is a field of the key.

        `others` are names of members that are found with them.
        """
        if not names or not kinds.keys().isdisjoint(names):
            return None
        absent = dict.fromkeys(names, _NO_VALUE)
        tails, checks = LineDecoder.of(kinds, absent), LineDecoder.of({}, absent)
        if tails is None or checks is None:
            return None
        wanted = [*dict.fromkeys([*kinds, *others])]
        return cls(names, code_of, tails, checks, wanted if all(map(can_find, wanted)) else ())

    def decode(self, lines: pa.Array) -> tuple[Column, Columns] | None:
        """Return key codes and the other fields of lines, as `LineDecoder.decode` takes them.

        The more lines, the more of their heads are the same.

        Return None also where the key does not stand in front, or heads are many.
        """
        if self._failures > FAILURES_MAX or not len(lines):
            return None
        found = self._decode(lines)
        if found is None:
            self._failures += 1
            self._commas = 0
        return found

    def _decode(self, lines: pa.Array) -> tuple[Column, Columns] | None:
        text = checked_text(lines)
        count = len(lines)
        if text is None:
            return None
        content = np.append(np.frombuffer(text.content, np.uint8), np.zeros(PADDING, np.uint8))
        edges = np.empty(2 * count + 1, np.int32)
        edges[0], edges[2::2] = 0, text.ends
        self._commas = self._commas or self._commas_of_head(content[: edges[2]].tobytes())
        objects = Objects(content, edges[::2].astype(np.int64))
        commas = objects.all_commas()
        columns = objects.columns(commas) if objects.are_flat else []
        is_even = 0 < self._commas < len(columns)
        cuts = columns[self._commas].starts - 1 if is_even else self._cuts(commas, edges)
        if cuts is None or not _begin_members(content, cuts):
            return None
        edges[1::2] = cuts
        content[cuts] = BRACE
        halves = pa.Array.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(content)]
        )
        places = np.arange(0, 2 * count, 2, dtype=np.int32)
        codes = self._codes_of(halves.take(pa.array(places)))
        if codes is None:
            return None
        members = self._members(objects, columns) if is_even else None
        fields = self._fields_of(halves.take(pa.array(places + 1)), members)
        return None if fields is None else (codes, fields)

    def _members(self, objects: Objects, columns: Sequence[Spans]) -> Members | None:
        """Return where the wanted members stand; None if that is not known, or none is wanted."""
        behind = columns if self._are_in_heads else columns[self._commas :]
        found = objects.named(behind, self._wanted) if self._wanted else None
        if found is None:
            return None
        pairs = zip(self._wanted, found, strict=True)
        return {name: Member(objects.text, len(objects.starts), *span) for name, span in pairs}

    def _fields_of(self, tails: pa.Array, members: Members | None) -> Columns | None:
        decoder = self._tails if members is None else self._checks
        _, offsets, content = tails.buffers()
        ends = np.frombuffer(offsets, np.int32)
        columns: dict[str, list[Any]] = {name: [] for name in decoder.names}
        for start in range(0, len(tails), LINES_AT_ONCE):
            end = min(start + LINES_AT_ONCE, len(tails))
            fields = decoder.fields(content[int(ends[start]) : int(ends[end])], end - start)
            if fields is None:
                return None
            for name, column in columns.items():
                column += fields.column(name)
        return Columns(columns, members or {})

    def _commas_of_head(self, line: bytes) -> int:
        """Return how many commas a line has up to the end of its head; 0 if it has none."""
        at = line.find(b",")
        while 0 <= at <= HEAD_BYTES_MAX:
            if self._is_head(line[:at]):
                return line.count(b",", 0, at) + 1
            at = line.find(b",", at + 1)
        return 0

    def _is_head(self, text: bytes) -> bool:
        if len(text) > HEAD_BYTES_MAX:
            return False
        try:
            check_json(text + b"}")
        except KeysError:
            return False
        found = members(text + b"}")
        return found is not None and self._names <= found.keys()

    def _cuts(self, commas: Column, edges: Column) -> Column | None:
        """Return the comma of each line at which its tail begins."""
        chosen = np.searchsorted(commas, edges[:-1:2]) + (self._commas - 1)
        if not self._commas or chosen[-1] >= len(commas):
            return None
        cuts: Column = commas[chosen]
        return None if (cuts >= edges[2::2]).any() else cuts

    def _codes_of(self, heads: pa.Array) -> Column | None:
        encoded = heads.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        if len(self._codes) > HEADS_MAX:
            self._codes.clear()
        new = [text for text in texts if text not in self._codes]
        if len(new) > 1 + NEW_HEADS_MAX * len(heads):
            return None
        for text in new:
            if not self._is_head(text):
                return None
            self._are_in_heads |= not (members(text + b"}") or {}).keys().isdisjoint(self._wanted)
            try:
                self._codes[text] = self._code_of(text + b"}")
            except KeysError:
                return None
        codes = np.array([self._codes[text] for text in texts], np.int64)
        found: Column = codes[np.asarray(encoded.indices)]
        return found


def _begin_members(text: Column, commas: Column) -> bool:
    """Return whether each comma stands before a name."""
    # With a brace in its place a comma before no field would pass; one before a name does not.
    following = commas + 1
    following += text[following] == SPACE
    return bool((text[following] == QUOTE).all())
