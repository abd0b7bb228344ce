"""Messages as columns: the key and the time of many lines at once, exactly as one by one.

The quick way takes key fields that are texts, integers or missing, and times that are numbers or
texts. A batch with anything else takes the closures of `keys/`, the same answer by definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.keys.errors import JsonInvalid, KeyMissing, KeysError
from tidegate.keys.jsontext import check_json
from tidegate.keys.path import getter
from tidegate.keys.spec import (
    INTEGER_MAX,
    INTEGER_MIN,
    KeySpec,
    conflation_key,
    join_key,
    record_key,
)
from tidegate.pipeline.columns.decoding import LINES_AT_ONCE, Fields, LineDecoder
from tidegate.pipeline.columns.heads import HeadDecoder
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.intervals import Column
from tidegate.pipeline.members.texts import Members, Spans, spans_in, together, top_level


class Read(NamedTuple):
    """Times in nanoseconds, None where no field has them; and for each key spec the keys' codes."""

    times_ns: Column | None
    codes: list[Column]


Found = tuple[Read, list[Spans] | None]
"""Of a piece of lines: what is read, and where some members stand; None if that is not known."""


class LineInvalidError(ValueError):
    """A line that is no message with a time; `index` is its place among those given."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


SPACE = b" \t\r\n"
_NEW = -1  # below every code


class KeyCodes:
    """Numbers for the keys that one task has seen, from 0 in order of appearance.

    Keys are those of records with `strict`, else of conflation, where a missing field is null.
    Without fields in `spec` a key comes with each record; no message contains it.
    """

    def __init__(self, spec: KeySpec, *, strict: bool = False) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}
        self._known: dict[Any, int] = {}
        self._strict = strict
        record_key_of = record_key(spec) if spec else _no_key
        self._key_of = record_key_of if strict else conflation_key(spec)

    def of_line(self, line: bytes) -> int:
        """Return the code of any message, by the closures of `keys/`.

        Raises:
            KeysError: it has no such key.
        """
        return self.code(self._key_of(line))

    def of_fields(self, fields: Fields, names: Sequence[str]) -> Column:
        """Return the codes of decoded fields, each a text, an integer or None.

        Raises:
            OverflowError: an integer beyond 64 bits, which is a key by its own spelling.
            ValueError: a record lacks a field.
        """
        # Every message is a look-up in C; Python runs for keys that are new to the task.
        codes = self._looked_up(fields, names)
        if codes.min(initial=0) == _NEW:
            for found in set(fields.rows(names)) - self._known.keys():
                row = (found,) if len(names) == 1 else found
                if self._strict and None in row:
                    raise ValueError("a field of the key is missing")
                self._known[found] = self.code(join_key([_canonical(each) for each in row]))
            codes = self._looked_up(fields, names)
        return codes

    def _looked_up(self, fields: Fields, names: Sequence[str]) -> Column:
        known = map(self._known.get, fields.rows(names), repeat(_NEW))
        return np.fromiter(known, np.int64, len(fields))

    def code(self, text: str) -> int:
        """Return the number of a key."""
        found = self._codes.get(text)
        if found is None:
            found = self._codes[text] = len(self.texts)
            self.texts.append(text)
        return found


class MessageReader:
    """Reads keys and times out of the lines of one task."""

    def __init__(
        self,
        specs: Sequence[KeySpec],
        time: TimeField | None,
        *,
        strict: bool = False,
    ) -> None:
        self.codes = [KeyCodes(spec, strict=strict) for spec in specs]
        self._names = [[str(path.steps[0]) for path in spec.paths] for spec in specs]
        self._time = time
        self._time_of = None if time is None else getter(time.path.steps)
        self._decoder = _decoder(specs, time)
        # With several keys no head has all of them for long.
        self._heads = None
        if self._decoder is not None and len(specs) == 1:
            kinds = _kinds(time)
            self._heads = HeadDecoder.of(self._names[0], self.codes[0].of_line, kinds)

    def read(self, lines: pa.Array) -> Read:
        """Return times and key codes of lines (binary, no nulls) with or without their breaks.

        Raises:
            LineInvalidError: the first line that is not strict JSON, or has no key or no time.
        """
        return self.read_with(lines, ())[0]

    def read_with(self, lines: pa.Array, names: Sequence[str]) -> tuple[Read, Members | None]:
        """Return what `read` does, and members of the lines, if these are found on the way.

        `names` are as those of `members_of`.
        """
        # All or nothing for a batch: a mix would need the two answers put back in order.
        found = None if self._decoder is None else self._read_at_once(self._decoder, lines, names)
        return (self._read_one_by_one(lines.to_pylist()), None) if found is None else found

    def _read_at_once(
        self, decoder: LineDecoder, lines: pa.Array, names: Sequence[str]
    ) -> tuple[Read, Members | None] | None:
        pieces, spans = [], []
        for start in range(0, max(1, len(lines)), LINES_AT_ONCE):
            piece = lines.slice(start, LINES_AT_ONCE)
            try:
                found = self._by_heads(piece, names) or self._by_fields(decoder, piece, names)
            except (ValueError, OverflowError):
                return None  # what is odd about it is found out line by line
            if found is None:
                return None
            pieces.append(found[0])
            if found[1] is not None:
                spans.append((start, found[1]))
        times_ns, codes = zip(*pieces, strict=True)
        read = Read(
            None if self._time is None else np.concatenate(times_ns),
            [np.concatenate(column) for column in zip(*codes, strict=True)],
        )
        has_members = names and len(spans) == len(pieces)
        return read, together(lines, names, spans) if has_members else None

    def _by_heads(self, lines: pa.Array, names: Sequence[str]) -> Found | None:
        found = None if self._heads is None else self._heads.decode(lines)
        if found is None:
            return None
        codes, fields = found
        read = self._of_fields(fields, [codes])
        assert self._heads is not None
        if not names or fields.tails is None or not self._heads.seen.isdisjoint(names):
            return read, spans_in(lines, names) if names else None
        # In the text behind the heads, of which there is less.
        begins = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset :][: len(lines)]
        tails, cuts = fields.tails
        return read, spans_in(tails, names, begins + cuts)

    def _by_fields(
        self, decoder: LineDecoder, lines: pa.Array, names: Sequence[str]
    ) -> Found | None:
        fields = decoder.decode(lines)
        if fields is None:
            return None
        pairs = zip(self.codes, self._names, strict=True)
        read = self._of_fields(fields, [known.of_fields(fields, own) for known, own in pairs])
        return read, spans_in(lines, names) if names else None

    def _of_fields(self, fields: Fields, codes: list[Column]) -> Read:
        times_ns = None
        if self._time is not None:
            times_ns = self._time.column_ns(fields.column(str(self._time.path.steps[0])))
        return Read(times_ns, codes)

    def judged(self, lines: Sequence[bytes | None], bytes_max: int) -> list[str | None]:
        """Return why each line cannot be read, in the gateway's words; None if it can."""
        return [None if line is None else self._judge(line, bytes_max) for line in lines]

    def _judge(self, line: bytes, bytes_max: int) -> str | None:
        try:
            if len(line) > bytes_max:
                raise JsonInvalid(f"longer than {bytes_max} bytes")
            # Strict JSON first: a key may be found in a line that the gateway would refuse.
            check_json(line)
            for known in self.codes:
                known.of_line(line)
            if self._time is not None:
                self._time_in(line)
        except KeysError as error:
            return f"{error.code}: {error.detail}"
        return None

    def _read_one_by_one(self, lines: list[bytes]) -> Read:
        times: list[int] = []
        codes: list[list[int]] = [[] for _ in self.codes]
        for index, written in enumerate(lines):
            line = written.strip(SPACE)
            try:
                check_json(line)
                for known, found in zip(self.codes, codes, strict=True):
                    found.append(known.of_line(line))
                if self._time is not None:
                    times.append(self._time_in(line))
            except KeysError as error:
                raise LineInvalidError(index, error.detail) from None
        column = None if self._time is None else np.array(times, np.int64)
        return Read(column, [np.array(found, np.int64) for found in codes])

    def _time_in(self, line: bytes) -> int:
        assert self._time is not None
        assert self._time_of is not None
        found = self._time_of(line)
        try:
            return self._time.ns(None if found is None else msgspec.json.decode(found))
        except (ValueError, OverflowError, msgspec.MsgspecError):
            raise JsonInvalid(f"no time in {self._time.path}") from None


def _decoder(specs: Sequence[KeySpec], time: TimeField | None) -> LineDecoder | None:
    """Return a decoder of top-level fields; None if a path goes deeper or a key has no field."""
    of_keys = [path for spec in specs for path in spec.paths]
    paths = [*of_keys, *([] if time is None else [time.path])]
    if None in map(top_level, paths) or not all(spec.paths for spec in specs):
        return None
    if time is not None and time.path in of_keys:
        return None
    return LineDecoder.of(_kinds(time) | {str(top_level(path)): str | int for path in of_keys})


def _kinds(time: TimeField | None) -> dict[str, Any]:
    """Return the type of the top-level field of a time."""
    return {} if time is None else {str(top_level(time.path)): int | float | str}


def _no_key(line: bytes) -> str:
    raise KeyMissing("the message does not contain its key")


def _canonical(field: str | int | None) -> str:
    if isinstance(field, int) and not INTEGER_MIN <= field <= INTEGER_MAX:
        raise OverflowError("a number of more than 64 bits")
    return "null" if field is None else msgspec.json.encode(field).decode()
