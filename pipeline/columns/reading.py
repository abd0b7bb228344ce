"""Messages as columns: the key and the time of many lines at once, exactly as one by one.

The quick way decodes the few fields into a struct, where each key field is a text, an integer
or missing, and the time a number or a text. A batch with anything else takes the closures of
`keys/`, which is the same answer by definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from tidegate.keys.errors import JsonInvalid, KeyMissing, KeysError, PathInvalid
from tidegate.keys.jsontext import DEPTH_MAX, check_json
from tidegate.keys.path import FieldPath, getter
from tidegate.keys.spec import (
    INTEGER_MAX,
    INTEGER_MIN,
    KeySpec,
    conflation_key,
    join_key,
    record_key,
)
from tidegate.keys.text.time import SECOND_NS, parse_iso_ns
from tidegate.pipeline.columns.intervals import MILLISECOND_NS, Column
from tidegate.pipeline.errors import UsageInvalid

# --- times in messages: numbers of seconds or milliseconds, or ISO 8601, as nanoseconds


# Milliseconds reach 1e11 in 1973, where seconds reach 1e8: since then no number has two meanings.
SECONDS_FROM, SECONDS_BELOW = 1e8, 1e11
NS_BELOW = 2**63 - 2**53  # an interval more must not overflow


class Unit(StrEnum):
    """The unit of a time that is a number.

    `auto`: seconds since 1970 from 1e8 to 1e11 (1973 to 5138), else milliseconds.
    """

    AUTO = "auto"
    MILLISECONDS = "ms"
    SECONDS = "s"


@dataclass(frozen=True, slots=True)
class TimeField:
    """The field of a message's time, and the unit of numbers in it; texts are ISO 8601."""

    path: FieldPath
    unit: Unit = Unit.AUTO

    @classmethod
    def of_options(cls, path: str | None, unit: str) -> TimeField | None:
        """Return the field of `--time-field` and `--time-unit`, None without `--time-field`.

        Raises:
            UsageInvalid: either has no meaning.
        """
        # The unit also without a field: a typing error is shown where it is made.
        if unit not in list(Unit):
            raise UsageInvalid(f"--time-unit: expected auto, ms or s, not {unit!r}")
        if path is None:
            return None
        try:
            return cls(FieldPath.parse(path), Unit(unit))
        except PathInvalid as error:
            raise UsageInvalid(f"--time-field {path}: {error.detail}") from None

    def ns(self, found: object) -> int:
        """Return the nanoseconds of a decoded time; a number counts to the microsecond.

        Raises:
            ValueError: no time.
        """
        ns = parse_iso_ns(found) if isinstance(found, str) else self._number_ns(found)
        if abs(ns) >= NS_BELOW:
            raise ValueError("a time out of range")
        return ns

    def column_ns(self, found: list[Any]) -> Column:
        """Return `ns` for the decoded times of many messages."""
        if set(map(type, found)) == {int}:
            times = np.array(found, np.int64)
            low, high = int(times.min()), int(times.max())
            scale_ns = self._scale_ns(low)
            alike = scale_ns == self._scale_ns(high) and (low < SECONDS_BELOW) == (
                high < SECONDS_BELOW
            )
            if low >= 0 and alike and high * scale_ns < NS_BELOW:
                return times * scale_ns
        return np.array([self.ns(each) for each in found], np.int64)

    def _number_ns(self, found: object) -> int:
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ValueError("no time")
        scale_ns = self._scale_ns(abs(found))
        if isinstance(found, int):
            return found * scale_ns
        return round(found * (scale_ns // 1_000)) * 1_000

    def _scale_ns(self, size: float) -> int:
        is_seconds = self.unit is Unit.SECONDS or (
            self.unit is Unit.AUTO and SECONDS_FROM <= size < SECONDS_BELOW
        )
        return SECOND_NS if is_seconds else MILLISECOND_NS


# --- the keys and times of many lines at once, exactly as one by one
#
# The quick way decodes the few fields into a struct, where each key field is a text, an integer
# or missing, and the time a number or a text. A batch with anything else takes the closures of
# `keys/`, which give the same answer by definition.

Read = tuple[Column | None, list[Column]]
"""Times in nanoseconds, None where no field has them; and for each key spec the keys' codes."""


class LineInvalidError(ValueError):
    """A line that is no message with a time; `index` is its place among those given."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


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

    def of_fields(self, fields: list[tuple[Any, ...]]) -> Column:
        """Return the codes of decoded fields, each a text, an integer or None: the quick way.

        Raises:
            OverflowError: an integer beyond 64 bits, which is a key by its own spelling.
            ValueError: a record lacks a field.
        """
        # Every message is a look-up in C; Python runs for keys that are new to the task.
        codes = list(map(self._known.get, fields))
        if None in codes:
            for field in set(fields) - self._known.keys():
                if self._strict and None in field:
                    raise ValueError("a field of the key is missing")
                self._known[field] = self.code(join_key([_canonical(each) for each in field]))
            codes = list(map(self._known.get, fields))
        return np.array(codes, np.int64)

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
        self._time = time
        self._time_of = None if time is None else getter(time.path.steps)
        self._quick = _quick_decoder(specs, time)

    def read(self, lines: list[bytes]) -> Read:
        """Return times and key codes of stripped lines.

        Raises:
            LineInvalidError: the first line that is not strict JSON, or has no key or no time.
        """
        # All or nothing for a batch: a mix would need the two answers put back in order.
        if self._quick is not None and not _may_be_odd(lines):
            try:
                return self._read_quickly(self._quick, lines)
            except (msgspec.MsgspecError, ValueError, OverflowError, UnicodeError):
                pass  # what is odd about it is found out below
        return self._read_one_by_one(lines)

    def _read_quickly(
        self, quick: _Quick, lines: list[bytes]
    ) -> tuple[Column | None, list[Column]]:
        records = list(map(quick.decode, lines))
        times = None
        if self._time is not None:
            times = self._time.column_ns([record.time for record in records])
        codes = [
            known.of_fields(list(map(fields_of, records)))
            for known, fields_of in zip(self.codes, quick.fields_of, strict=True)
        ]
        return times, codes

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
        for index, line in enumerate(lines):
            try:
                check_json(line)
                for known, found in zip(self.codes, codes, strict=True):
                    found.append(known.of_line(line))
                if self._time is not None:
                    times.append(self._time_in(line))
            except KeysError as error:
                raise LineInvalidError(index, error.detail) from None
        column = None if self._time is None else np.array(times, np.int64)
        return column, [np.array(found, np.int64) for found in codes]

    def _time_in(self, line: bytes) -> int:
        assert self._time is not None
        assert self._time_of is not None
        found = self._time_of(line)
        try:
            return self._time.ns(None if found is None else msgspec.json.decode(found))
        except (ValueError, OverflowError, msgspec.MsgspecError):
            raise JsonInvalid(f"no time in {self._time.path}") from None


@dataclass(frozen=True, slots=True)
class _Quick:
    decode: Callable[[bytes], Any]
    fields_of: list[Callable[[Any], tuple[Any, ...]]]


def _quick_decoder(specs: Sequence[KeySpec], time: TimeField | None) -> _Quick | None:
    """Return a decoder of top-level fields; None if a path goes deeper or a key has no field."""
    paths = [path for spec in specs for path in spec.paths]
    if not all(spec.paths for spec in specs) or any(
        len(path.steps) > 1 or not isinstance(path.steps[0], str)
        for path in [*paths, *([] if time is None else [time.path])]
    ):
        return None
    names = list(dict.fromkeys(str(path.steps[0]) for path in paths))
    if time is not None and str(time.path.steps[0]) in names:
        return None
    fields: list[Any] = [(f"f{at}", str | int | None, None) for at in range(len(names))]
    renamed = {f"f{at}": name for at, name in enumerate(names)}
    if time is not None:
        fields.append(("time", int | float | str | None, None))
        renamed["time"] = str(time.path.steps[0])
    try:
        struct = msgspec.defstruct("Fields", fields, rename=renamed, gc=False)
    except ValueError:  # a name that no struct can have
        return None
    places = [[f"f{names.index(str(path.steps[0]))}" for path in spec.paths] for spec in specs]
    return _Quick(msgspec.json.Decoder(struct).decode, [_tuple_of(place) for place in places])


def _no_key(line: bytes) -> str:
    raise KeyMissing("the message does not contain its key")


def _tuple_of(attributes: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(attributes) == 1:
        only = attrgetter(attributes[0])
        return lambda record: (only(record),)
    return attrgetter(*attributes)


def _canonical(field: str | int | None) -> str:
    if isinstance(field, int) and not INTEGER_MIN <= field <= INTEGER_MAX:
        raise OverflowError("a number of more than 64 bits")
    return "null" if field is None else msgspec.json.encode(field).decode()


def _may_be_odd(lines: list[bytes]) -> bool:
    """Return whether a line may be too deep or no UTF-8, which a partial decode does not see."""
    if any(line.count(b"[") + line.count(b"{") > DEPTH_MAX for line in lines):
        return True
    try:
        b"\n".join(lines).decode()
    except UnicodeDecodeError:
        return True
    return False
