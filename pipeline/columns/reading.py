"""Messages as columns: the key and the time of many lines at once, exactly as one by one.

The fast path takes key fields that are texts, integers or missing, and times that are numbers or
texts. A batch with anything else is read by the closures of `keys/`, whose answers define the
result.
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
from tidegate.pipeline.columns.times import TimeField
from tidegate.pipeline.intervals import Column
from tidegate.pipeline.json_fields.field_columns import top_level


class Read(NamedTuple):
    """Times in nanoseconds, None where no field has them; and for each key spec the keys' codes."""

    times_ns: Column | None
    codes: list[Column]


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
        self._spec = spec
        self._codes: dict[str, int] = {}
        self._of_longer = np.zeros(0, np.int64)
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
            for found in dict.fromkeys(fields.rows(names)):
                if found in self._known:
                    continue
                row = (found,) if len(names) == 1 else found
                if self._strict and None in row:
                    raise ValueError("a field of the key is missing")
                self._known[found] = self.code(join_key([_canonical(each) for each in row]))
            codes = self._looked_up(fields, names)
        return codes

    def of_longer(self, longer: KeyCodes, codes: Column) -> Column:
        """Return the codes of messages by those of a key that has all fields of this one."""
        if len(self._of_longer) < len(longer.texts):
            places = [longer._spec.paths.index(path) for path in self._spec.paths]
            found = []
            for text in longer.texts[len(self._of_longer) :]:
                parts = msgspec.json.decode(text, type=list[msgspec.Raw])
                found.append(self.code(join_key([bytes(parts[at]).decode() for at in places])))
            self._of_longer = np.append(self._of_longer, np.array(found, np.int64))
        return self._of_longer[codes]

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
        self, specs: Sequence[KeySpec], time: TimeField | None, *, strict: bool = False
    ) -> None:
        self.codes = [KeyCodes(spec, strict=strict) for spec in specs]
        self._longer = [_longer(spec, specs) for spec in specs]
        self._decoded = [at for at, longer in enumerate(self._longer) if at == longer]
        self._names = [[str(path.steps[0]) for path in spec.paths] for spec in specs]
        self._time = time
        self._time_of = None if time is None else getter(time.path.steps)
        self._decoder = _decoder(specs, time)

    def read(self, lines: pa.Array) -> Read:
        """Return times and key codes of lines (binary, no nulls) with or without their breaks.

        Raises:
            LineInvalidError: the first line that is not strict JSON, or has no key or no time.
        """
        # All or nothing for a batch: mixed results would have to be put back in order.
        found = None if self._decoder is None else self._read_at_once(self._decoder, lines)
        return self._read_one_by_one(lines.to_pylist()) if found is None else found

    def _read_at_once(self, decoder: LineDecoder, lines: pa.Array) -> Read | None:
        try:
            found = self._by_fields(decoder, lines)
        except (ValueError, OverflowError, msgspec.MsgspecError):
            return None  # what is odd about it is found out line by line
        if found is None:
            return None
        codes = dict(zip(self._decoded, found.codes, strict=True))
        # What a longer key says is not looked up again in each message.
        shared = [
            codes[at]
            if at == longer
            else self.codes[at].of_longer(self.codes[longer], codes[longer])
            for at, longer in enumerate(self._longer)
        ]
        return Read(found.times_ns, shared)

    def _by_fields(self, decoder: LineDecoder, lines: pa.Array) -> Read | None:
        times: list[Column] = []
        codes = []
        for start in range(0, max(1, len(lines)), LINES_AT_ONCE):
            fields = decoder.decode(lines.slice(start, LINES_AT_ONCE))
            if fields is None:
                return None
            found = self._times(fields)
            times += [] if found is None else [found]
            codes.append(
                [self.codes[at].of_fields(fields, self._names[at]) for at in self._decoded]
            )
        times_ns = np.concatenate(times) if times else None
        return Read(times_ns, [np.concatenate(column) for column in zip(*codes, strict=True)])

    def _times(self, fields: Fields) -> Column | None:
        if self._time is None:
            return None
        return self._time.column_ns(fields.column(str(self._time.path.steps[0])))

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


def _longer(spec: KeySpec, specs: Sequence[KeySpec]) -> int:
    """Return the place of the longest key that has all fields of this one; its own if none has."""
    having = [at for at, one in enumerate(specs) if set(one.paths) >= set(spec.paths)]
    return max(having, key=lambda at: len(specs[at].paths))


def _decoder(specs: Sequence[KeySpec], time: TimeField | None) -> LineDecoder | None:
    """Return a decoder of top-level fields; None if a path goes deeper or a key has no field."""
    of_keys = [path for spec in specs for path in spec.paths]
    paths = [*of_keys, *([] if time is None else [time.path])]
    if None in map(top_level, paths) or not all(spec.paths for spec in specs):
        return None
    if time is not None and time.path in of_keys:
        return None
    kinds: dict[str, Any] = {str(top_level(path)): str | int for path in of_keys}
    if time is not None:
        kinds[str(top_level(time.path))] = int | float | str
    return LineDecoder.of(kinds)


def _no_key(line: bytes) -> str:
    raise KeyMissing("the message does not contain its key")


def _canonical(field: str | int | None) -> str:
    if isinstance(field, int) and not INTEGER_MIN <= field <= INTEGER_MAX:
        raise OverflowError("a number of more than 64 bits")
    return "null" if field is None else msgspec.json.encode(field).decode()
