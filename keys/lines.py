"""NDJSON lines: many messages, checked and keyed together.

One line costs `check_json` and `record_key` a microsecond and a half, most of it Python calls. Here
each step is one call for all lines, and msgspec checks a line in the pass that finds its key. A
reader decides only what is cheap to decide: where it cannot vouch for every line it returns None,
and the caller reads the lines one by one. So both accept the same, and refusals have one source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.keys.jsontext import DEPTH_MAX, may_exceed_double, one_line
from tidegate.keys.path import Step, has_invalid_struct_character, memoize_bounded
from tidegate.keys.spec import INTEGER_MAX, INTEGER_MIN, KeySpec


class Lines(NamedTuple):
    """Messages in the order of their lines, each on one line, and their SOW keys."""

    payloads: list[bytes]
    keys: list[str]


_KeysOf = Callable[[Sequence[Any], bool], list[str] | None]

# Floats are left out: their text decides if two numbers are one key, and a value has lost it.
_Scalar: Final = str | int
_check_syntax: Final = msgspec.json.Decoder(msgspec.Raw).decode


class LineReader:
    """Reads pieces of NDJSON for topics with one key; without a key each message has the key ""."""

    def __init__(self, decode: Callable[[bytes], Any], keys_of: _KeysOf | None) -> None:
        """`decode` checks a line; `keys_of` takes what it returned, and whether a text has escapes.

        Without `keys_of` a line may be any value.
        """
        self._decode = decode
        self._keys_of = keys_of

    @classmethod
    def of(cls, spec: KeySpec) -> LineReader | None:
        """Compile a reader; None for a key that has no struct, such as places in an array."""
        if not spec:
            return cls(_check_syntax, None)
        record = _record_type(tuple(path.steps for path in spec.paths))
        if record is None:
            return None
        decode = msgspec.json.Decoder(record.type).decode
        return cls(decode, _keys_of([attrgetter(place) for place in record.places]))

    def read(self, piece: bytes, bytes_max: int) -> Lines | None:
        """Read a piece of whole lines, empty ones left out.

        Return None where a line is invalid or longer than `bytes_max`, or unusual: it has space
        alone, or a key field that is no string or integer.
        """
        lines = list(filter(None, piece.split(b"\n")))
        if len(piece) > bytes_max and max(map(len, lines), default=0) > bytes_max:
            return None
        # A line break is no part of a UTF-8 sequence: the lines are valid exactly if the piece is.
        if not (piece.isascii() or is_utf8(piece)):
            return None
        try:
            records = list(map(self._decode, lines))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        # msgspec's own limit of depth is the interpreter's stack, which differs from call to call.
        if _brackets_most(piece, lines, are_objects=self._keys_of is not None) > DEPTH_MAX:
            return None
        # Nor does it look at the numbers of fields that it passes over.
        if may_exceed_double(piece):
            return None
        keys = (
            [""] * len(lines) if self._keys_of is None else self._keys_of(records, b"\\" in piece)
        )
        if keys is None:
            return None
        # After the check: only now what `strip` takes is JSON's space, and a return is no content.
        return Lines(list(map(one_line if b"\r" in piece else bytes.strip, lines)), keys)


def is_utf8(piece: bytes) -> bool:
    """Return True if bytes are UTF-8."""
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def _brackets_most(piece: bytes, lines: Sequence[bytes], *, are_objects: bool) -> int:
    """Return a bound of the opening brackets in any one line."""
    # `replace` looks for a rare byte with memchr, several times as fast as `count` does.
    braces = len(piece) - len(piece.replace(b"{", b""))
    brackets = len(piece) - len(piece.replace(b"[", b""))
    # Each other line has a brace of its own. Most messages are flat, so that this says enough.
    elsewhere = len(lines) - 1 if are_objects else 0
    if braces + brackets - elsewhere <= DEPTH_MAX:
        return braces + brackets - elsewhere
    most = max(map(bytes.count, lines, repeat(b"{")))
    return most + max(map(bytes.count, lines, repeat(b"["))) if brackets else most


class _Record(NamedTuple):
    """A struct of some fields alone, and the attribute path of each."""

    type: type[msgspec.Struct]
    places: list[str]


@memoize_bounded
def _record_type(paths: tuple[tuple[Step, ...], ...]) -> _Record | None:
    """Return the struct of these fields; None where there is none."""
    below: dict[str, list[tuple[Step, ...]]] = {}
    for path in paths:
        name = path[0]
        if not isinstance(name, str) or has_invalid_struct_character(name):
            return None
        below.setdefault(name, []).append(path[1:])
    fields: dict[str, Any] = {}
    places: dict[tuple[Step, ...], str] = {}
    for number, (name, rests) in enumerate(below.items()):
        attribute = f"f{number}"
        # A field that is part of the key and also holds a part never fits; no reader has to know.
        inner = None if rests == [()] or () in rests else _record_type(tuple(rests))
        if inner is None and rests != [()]:
            return None
        fields[attribute] = _Scalar if inner is None else inner.type
        below_places = [""] if inner is None else [f".{place}" for place in inner.places]
        for rest, place in zip(rests, below_places, strict=True):
            places[name, *rest] = attribute + place
    renamed = dict(zip(fields, below, strict=True))
    struct = msgspec.defstruct("KeyFields", list(fields.items()), rename=renamed, gc=False)
    return _Record(struct, [places[path] for path in paths])


def _keys_of(fields: Sequence[Callable[[Any], Any]]) -> _KeysOf:
    """Return `records -> SOW keys`; None where a field has to be looked at by itself."""
    if len(fields) == 1:
        return partial(_canonical, fields[0], "[", "]")

    def keys(records: Sequence[Any], has_escapes: bool) -> list[str] | None:
        columns = [_canonical(field, "", "", records, has_escapes) for field in fields]
        if None in columns:
            return None
        return [f"[{','.join(texts)}]" for texts in zip(*columns, strict=True)]

    return keys


def _canonical(
    field: Callable[[Any], Any],
    before: str,
    after: str,
    records: Sequence[Any],
    has_escapes: bool,
) -> list[str] | None:
    """Spell a field's values, each between two texts, as `canonical_scalar` does.

    None where they are of two kinds, or too large.
    """
    values = list(map(field, records))
    kinds = set(map(type, values))
    if kinds == {str}:
        if has_escapes:
            return [f"{before}{msgspec.json.encode(value).decode()}{after}" for value in values]
        # No backslash in the text: the string stood there as it is now.
        before, after = before + '"', '"' + after
        return [f"{before}{value}{after}" for value in values]
    if kinds == {int} and min(values) >= INTEGER_MIN and max(values) <= INTEGER_MAX:
        return [f"{before}{value}{after}" for value in values]
    return None
