"""Lines whose key stands in front: few beginnings, each read once, and the rest of each line.

A line is cut at a comma. If both halves are objects by themselves, with a brace more each, then the
line is one object with the fields of both; so the place of the cut may be a
guess. The first half, the *head*, has the key, and the same few heads come again and again: a
look-up finds the code of each. The second half, the *tail*, is decoded as a whole line would be.
Where one line differs there is no answer, and the caller decodes whole lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.keys.errors import KeysError
from tidegate.keys.jsontext import check_json, members
from tidegate.pipeline.columns.decoding import Fields, LineDecoder, checked_text
from tidegate.pipeline.intervals import Column

COMMA, QUOTE, SPACE, BRACE = b'," {'
# A head that is new costs as much as some lines: many of them are no beginnings that come again.
NEW_HEADS_MAX = 1 / 16
FAILURES_MAX = 4
# Bounds on what a hostile line costs: each comma is tried with all before it, and heads are kept.
HEAD_BYTES_MAX = 1_024
HEADS_MAX = 65_536
# No value has this type, null neither: a tail with a field of the key is no tail.
_NO_VALUE = Annotated[int, msgspec.Meta(ge=1, le=0)]


class HeadDecoder:
    """Decodes lines by heads; `code_of` gives the code of the key in an object.

    It gives up after some failures, for the rest of its task. `seen` are the names in all heads.
    """

    def __init__(
        self, names: Sequence[str], code_of: Callable[[bytes], int], tails: LineDecoder
    ) -> None:
        self.seen: set[str] = set()
        self._names = frozenset(names)
        self._code_of = code_of
        self._tails = tails
        self._codes: dict[bytes, int] = {}
        self._commas = 0
        self._failures = 0

    @classmethod
    def of(
        cls, names: Sequence[str], code_of: Callable[[bytes], int], kinds: Mapping[str, Any]
    ) -> HeadDecoder | None:
        """Return a decoder of other fields of these kinds; None if one is a field of the key."""
        if not names or not kinds.keys().isdisjoint(names):
            return None
        tails = LineDecoder.of(dict(kinds), absent=dict.fromkeys(names, _NO_VALUE))
        return None if tails is None else cls(names, code_of, tails)

    def decode(self, lines: pa.Array) -> tuple[Column, Fields] | None:
        """Return key codes and the other fields of lines, as `LineDecoder.decode` takes them.

        Return None also where the key does not stand in front, or heads are many.
        """
        if self._failures > FAILURES_MAX or not len(lines):
            return None
        found = self._decode(lines)
        if found is None:
            self._failures += 1
            self._commas = 0
        return found

    def _decode(self, lines: pa.Array) -> tuple[Column, Fields] | None:
        text = checked_text(lines)
        count = len(lines)
        if text is None:
            return None
        content = np.frombuffer(text.content, np.uint8)
        edges = np.empty(2 * count + 1, np.int32)
        edges[0], edges[2::2] = 0, text.ends
        self._commas = self._commas or self._commas_of_head(content[: edges[2]].tobytes())
        cuts = self._cuts(content, edges)
        if cuts is None:
            return None
        edges[1::2] = cuts
        content = content.copy()
        content[cuts] = BRACE
        halves = pa.Array.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(content)]
        )
        places = np.arange(0, 2 * count, 2, dtype=np.int32)
        codes = self._codes_of(halves.take(pa.array(places)))
        if codes is None:
            return None
        tails = halves.take(pa.array(places + 1))
        _, ends, rest = tails.buffers()
        fields = self._tails.fields(rest[: int(np.frombuffer(ends, np.int32)[count])], count)
        if fields is None:
            return None
        return codes, replace(fields, tails=(tails, cuts - edges[:-1:2]))

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

    def _cuts(self, content: Column, edges: Column) -> Column | None:
        """Return where the tail of each line begins, at a comma before a further field."""
        commas = np.flatnonzero(content == COMMA)
        chosen = np.searchsorted(commas, edges[:-1:2]) + (self._commas - 1)
        if not self._commas or chosen[-1] >= len(commas):
            return None
        cuts = commas[chosen]
        if (cuts >= edges[2::2]).any():
            return None
        # With a brace in its place a comma before no field would pass; one before a name does not.
        last = len(content) - 1
        following = np.minimum(cuts + 1, last)
        following = np.minimum(following + (content[following] == SPACE), last)
        found: Column | None = cuts if (content[following] == QUOTE).all() else None
        return found

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
            self.seen |= (members(text + b"}") or {}).keys()
            try:
                self._codes[text] = self._code_of(text + b"}")
            except KeysError:
                return None
        codes = np.array([self._codes[text] for text in texts], np.int64)
        found: Column = codes[np.asarray(encoded.indices)]
        return found
