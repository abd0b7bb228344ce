"""Key specs: the ordered field paths that distinguish one record from another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import msgspec

from tidegate.keys.errors import JsonInvalid, KeyInvalid, KeyMissing, PathInvalid
from tidegate.keys.jsontext import canonical_value, check_json
from tidegate.keys.path import FieldPath, Getter, fields_decoder, getter

FIELDS_MAX = 16


@dataclass(frozen=True, slots=True)
class KeySpec:
    """One or more field paths; hashable, so that equal specs share their boards.

    The empty spec is the topic itself: every message has the one key `[]`.
    """

    paths: tuple[FieldPath, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> KeySpec:
        """Read path texts, as a topic's `key` field lists them; no text gives the empty spec.

        Raises:
            PathInvalid: a malformed or repeated path, or more than 16.
        """
        return cls._checked([(text, 0) for text in texts])

    @classmethod
    def parse(cls, text: str, position: int = 0) -> KeySpec:
        """Parse the options spelling `[/a,/b]`; `position` is its start in the options.

        Raises:
            PathInvalid: brackets missing, an empty list, or as `of`.
        """
        if len(text) < 2 or text[0] != "[" or text[-1] != "]":
            raise PathInvalid("expected field paths in brackets, such as [/a,/b]", position)
        parts = [
            (part.strip(), position + 1 + start + len(part) - len(part.lstrip()))
            for part, start in split_list(text[1:-1])
        ]
        return cls._checked(parts)

    @classmethod
    def _checked(cls, parts: list[tuple[str, int]]) -> KeySpec:
        if len(parts) > FIELDS_MAX:
            raise PathInvalid(f"a key has at most {FIELDS_MAX} fields", parts[FIELDS_MAX][1])
        paths: list[FieldPath] = []
        for text, position in parts:
            path = FieldPath.parse(text, position)
            if path in paths:
                raise PathInvalid("a path is given twice in the key", position)
            paths.append(path)
        return cls(tuple(paths))

    def __str__(self) -> str:
        """Return the canonical options spelling, `[/a,/b]`."""
        return "[" + ",".join(str(path) for path in self.paths) + "]"

    def __bool__(self) -> bool:
        return bool(self.paths)


def split_list(text: str) -> Iterator[tuple[str, int]]:
    """Split a comma-separated text into parts and positions; brackets and quotes hold commas."""
    depth, quote, start, escaped = 0, "", 0, False
    for at, character in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "[(":
            depth += 1
        elif character in "])":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:at], start
            start = at + 1
    yield text[start:], start


NUMBER_LENGTH_MAX = 400
INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**64 - 1

_SHORT_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,17}").fullmatch
_SOME_DIGIT = re.compile(rb"[-0.]*[1-9]").match
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode


def canonical_scalar(text: bytes) -> str:
    """Return the one spelling of a scalar's JSON text: `1.0` and `1e0` become `1`.

    Strings keep their type (`"1"` is not `1`), escapes are resolved where JSON allows.

    Raises:
        KeyInvalid: null, an object or array, or a number beyond 64 bits.
    """
    # Most keys are short integers or strings without escapes, whose text is canonical as it is.
    first = text[:1]
    if first == b'"':
        if b"\\" in text:
            return msgspec.json.encode(_text(text)).decode()
        return text.decode()
    if first in b"-0123456789":
        return text.decode() if _SHORT_INTEGER(text) else _number(text)
    if first in b"tf":
        return text.decode()
    kind = {b"n": "null", b"{": "an object", b"[": "an array"}[first]
    raise KeyInvalid(f"a key field is a string, number or boolean, not {kind}")


def canonical_key(text: bytes) -> str:
    """Return the one spelling of a whole key: `["IBM", 7.0]` becomes `["IBM",7]`.

    Raises:
        KeyInvalid: not a JSON array of scalars (null is allowed, as in conflation keys).
    """
    try:
        fields = _items(text)
        return join_key([canonical_or_null(bytes(field)) for field in fields])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KeyInvalid('a key is written as a JSON array such as ["IBM",7]') from error


def group_key(text: bytes) -> str:
    """Return the one spelling of a group's or a conflation key, whose fields may be any value.

    Raises:
        KeyInvalid: not a JSON array.
    """
    try:
        check_json(text)
        return join_key([canonical_or_own(bytes(field)) for field in _items(text)])
    except (msgspec.DecodeError, JsonInvalid) as error:
        raise KeyInvalid('a key is written as a JSON array such as ["IBM",7]') from error


def canonical_or_own(text: bytes) -> str:
    """Return what `canonical_scalar` does; any other value keeps a spelling of its own.

    Unequal values get different keys, and equal ones the same key.
    """
    try:
        return canonical_or_null(text)
    except KeyInvalid:
        return canonical_value(text)


def canonical_or_null(text: bytes) -> str:
    """Return what `canonical_scalar` does, but null stays null."""
    return "null" if text == b"null" else canonical_scalar(text)


def join_key(fields: list[str]) -> str:
    """Join canonical fields to a JSON array without spaces."""
    return "[" + ",".join(fields) + "]"


def _number(text: bytes) -> str:
    """Return integers exactly, and other numbers as a double whose spelling is this number.

    Raises:
        KeyInvalid: 64 bits cannot hold it, and another number would get the same key.
    """
    beyond = KeyInvalid("a number in a key must fit into 64 bits")
    # A double first: exact arithmetic on an enormous exponent would take forever.
    near = float(text)
    if len(text) > NUMBER_LENGTH_MAX or near in (float("inf"), float("-inf")):
        raise beyond
    if near == 0:
        if _SOME_DIGIT(text):  # an underflow, not zero
            raise beyond
        return "0"
    exact = Decimal(text.decode())
    if exact == int(exact):
        if not INTEGER_MIN <= exact <= INTEGER_MAX:
            raise beyond
        return str(int(exact))
    if exact != Decimal(repr(near)):  # rounded: two numbers would become one key
        raise beyond
    return repr(near)


KeyOf = Callable[[bytes], str]
FieldsOf = Callable[[bytes], list[bytes | None]]


def record_key(spec: KeySpec) -> KeyOf:
    """Return `payload -> SOW key`: every field a present scalar, not null.

    The returned function takes strict JSON text and raises `KeyMissing` or `KeyInvalid`.
    """
    fields_of = read_fields(spec.paths)
    # Spelled once: they are needed only for the message that lacks one.
    names = [str(path) for path in spec.paths]

    def key_of(payload: bytes) -> str:
        fields: list[str] = []
        for at, (name, text) in enumerate(zip(names, fields_of(payload), strict=True)):
            if text is None:
                reason = _not_a_container(payload, spec.paths[at])
                raise KeyMissing(f"the message has no field {name}{reason}")
            try:
                fields.append(canonical_scalar(text))
            except KeyInvalid as error:
                raise KeyInvalid(f"{name}: {error.detail}") from None
        return join_key(fields)

    return key_of


_KINDS = {b"{": "an object", b"[": "an array", b'"': "a string", b"n": "null"}
_KINDS |= dict.fromkeys((b"t", b"f"), "a boolean")


def _not_a_container(payload: bytes, path: FieldPath) -> str:
    """Return the end of a sentence where a message is of a kind that cannot have the field."""
    kind = _KINDS.get(payload.lstrip()[:1], "a number")
    wanted = "an array" if isinstance(path.steps[0], int) else "an object"
    return "" if kind == wanted else f": it is {kind}, not {wanted}"


@lru_cache(maxsize=1_024)
def conflation_key(spec: KeySpec) -> KeyOf:
    """Return `payload -> conflation key`: a missing field counts as null.

    A field that is not a scalar within 64 bits keeps a spelling of its own, so that unequal values
    get different keys.
    """
    fields_of = read_fields(spec.paths)

    def key_of(payload: bytes) -> str:
        return join_key([_or_null(text) for text in fields_of(payload)])

    return key_of


@lru_cache(maxsize=1_024)  # orders, reductions and groups ask for each message
def read_fields(paths: tuple[FieldPath, ...]) -> FieldsOf:
    """Return `payload -> JSON text of each field`, None where absent; nothing else is decoded."""
    # A struct has names alone; places in an array are read from the whole text.
    if any(isinstance(path.steps[0], int) for path in paths):
        getters = [getter(path.steps) for path in paths]
        return lambda payload: [field(payload) for field in getters]
    # Two paths may begin with one field, which is decoded once.
    names = tuple(dict.fromkeys(str(path.steps[0]) for path in paths))
    decode = fields_decoder(names)
    slots: list[tuple[str, Getter | None]] = [
        (
            f"f{names.index(str(path.steps[0]))}",
            getter(path.steps[1:]) if len(path.steps) > 1 else None,
        )
        for path in paths
    ]

    def read(payload: bytes) -> list[bytes | None]:
        try:
            record = decode(payload)
        # Not an object, so it has none of the fields.
        except msgspec.ValidationError:
            return [None] * len(slots)
        return [_inside(getattr(record, slot), rest) for slot, rest in slots]

    return read


def _inside(found: object, rest: Getter | None) -> bytes | None:
    if not isinstance(found, msgspec.Raw):
        return None
    text = bytes(found)
    return text if rest is None else rest(text)


def _or_null(text: bytes | None) -> str:
    return "null" if text is None else canonical_or_own(text)
