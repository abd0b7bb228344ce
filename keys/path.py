"""Field paths: `/a/b` as in AMPS, or JSONPath `$.a.b[0]`; both become the same steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
from jsonpath_ng.exceptions import JSONPathError
from jsonpath_ng.jsonpath import Child, Fields, Index, JSONPath, Root
from jsonpath_ng.parser import JsonPathParser

from tidegate.keys.errors import PathInvalid

TEXT_LENGTH_MAX = 1_024
TYPES_MAX = 4_096
TYPE_FIELDS_MAX = 32  # a type of so many takes some 5 KiB

_Fields = TypeVar("_Fields", bound=tuple[Any, ...])
_Result = TypeVar("_Result")


# Parsing takes long, and subscriptions repeat the same paths.
@lru_cache(maxsize=1_024)
def _parsed(text: str) -> JSONPath:
    return JsonPathParser().parse(text)


def jsonpath_steps(text: str, position: int = 0) -> tuple[str | int, ...]:
    """Return the names and indexes of a JSONPath such as `$.a['b c'][0]`.

    A field path names one place, so wildcards, slices, filters and `..` are refused.

    Raises:
        PathInvalid: not JSONPath, or one that can name more than one place.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise PathInvalid(f"a JSONPath has at most {TEXT_LENGTH_MAX} characters", position)
    try:
        tree = _parsed(text)
    except (JSONPathError, RecursionError, DeprecationWarning) as error:
        # jsonpath-ng warns of operators that it will drop, all of which name several places.
        raise PathInvalid("not a JSONPath", position) from error
    steps: list[str | int] = []
    _collect(tree, steps, position)
    if not steps:
        raise PathInvalid("a field path names at least one field", position)
    return tuple(steps)


def _collect(tree: JSONPath, steps: list[str | int], position: int) -> None:
    if isinstance(tree, Child):
        _collect(tree.left, steps, position)
        _collect(tree.right, steps, position)
    elif isinstance(tree, Fields) and len(tree.fields) == 1 and tree.fields[0] != "*":
        steps.append(tree.fields[0])
    elif isinstance(tree, Index) and len(tree.indices) == 1 and tree.indices[0] >= 0:
        steps.append(tree.indices[0])
    elif not isinstance(tree, Root):
        raise PathInvalid("a JSONPath here names one place", position)


STEPS_MAX = 64
Step = str | int
Getter = Callable[[bytes], bytes | None]

NAME = re.compile(r"[\w@$][\w@$.:-]*")
has_invalid_struct_character = re.compile(r'[\\"\x00-\x1f]').search


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The place of a field in a message: object names and array indexes, outermost first.

    Two spellings of one place (`/a/b`, `$.a.b`) are equal.
    """

    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str, position: int = 0) -> FieldPath:
        """Parse one path; `position` is its offset in the enclosing text, for refusals.

        Raises:
            PathInvalid: not a path, or more than 64 steps.
        """
        if text.startswith("$"):
            steps = jsonpath_steps(text, position)
        elif text.startswith("/"):
            steps = _slash_steps(text, position)
        else:
            raise PathInvalid("a field path starts with / or $", position)
        if len(steps) > STEPS_MAX:
            raise PathInvalid(f"a field path has at most {STEPS_MAX} steps", position)
        return cls(steps)

    def __str__(self) -> str:
        """Return the canonical spelling: `/a/b` if every step is a plain name, else JSONPath."""
        if all(isinstance(step, str) and NAME.fullmatch(step) for step in self.steps):
            return "/" + "/".join(str(step) for step in self.steps)
        return "$" + "".join(_bracketed(step) for step in self.steps)


def getter(steps: tuple[Step, ...]) -> Getter:
    """Compile steps: JSON text of a value in, JSON text of the field out, None if absent."""
    if not steps:
        return bytes
    first, rest = _one_step(steps[0]), getter(steps[1:])

    def field(text: bytes) -> bytes | None:
        inner = first(text)
        return None if inner is None else rest(inner)

    return field if len(steps) > 1 else first


def _one_step(step: Step) -> Getter:
    if isinstance(step, int):
        decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode

        def item(text: bytes) -> bytes | None:
            try:
                return bytes(decode_items(text)[step])
            except (msgspec.ValidationError, IndexError):
                return None

        return item
    decode = fields_decoder((step,))

    def member(text: bytes) -> bytes | None:
        try:
            found = getattr(decode(text), "f0")  # noqa: B009 - a field made at run time
        except msgspec.ValidationError:
            return None
        return None if found is msgspec.UNSET else bytes(found)

    return member


def memoize_bounded(
    make: Callable[[_Fields], _Result | None],
) -> Callable[[_Fields], _Result | None]:
    """Memoize up to `TYPES_MAX` results of `make`; return None beyond that.

    A decoder's type takes 0.1 ms to make, and topics and subscriptions repeat the same fields. A
    type is a reference cycle, and full collections are rare, so evicted types would pile up. Beyond
    the limit callers use a slower decoder.
    """
    kept: dict[_Fields, _Result] = {}

    @wraps(make)
    def found(fields: _Fields) -> _Result | None:
        if fields not in kept and len(kept) < TYPES_MAX and len(fields) <= TYPE_FIELDS_MAX:
            if (made := make(fields)) is None:
                return None
            kept[fields] = made
        return kept.get(fields)

    return found


def fields_decoder(names: tuple[str, ...]) -> Callable[[bytes], Any]:
    """Return a decoder of only these top-level fields: raw JSON text in `f0`, `f1`, ... or UNSET.

    It raises `msgspec.ValidationError` for a text that is no object.
    """
    return _struct_decoder(names) or _all_fields_decoder(names)


@memoize_bounded
def _struct_decoder(names: tuple[str, ...]) -> Callable[[bytes], msgspec.Struct] | None:
    # msgspec refuses these names for structs, because it does not escape field names.
    if any(map(has_invalid_struct_character, names)):
        return None
    renamed = {f"f{index}": name for index, name in enumerate(names)}
    fields = [(attribute, msgspec.Raw, msgspec.UNSET) for attribute in renamed]
    struct = msgspec.defstruct("Fields", fields, rename=renamed, gc=False)
    return msgspec.json.Decoder(struct).decode


def _all_fields_decoder(names: tuple[str, ...]) -> Callable[[bytes], SimpleNamespace]:
    """Return a slower decoder, for which no type is made."""
    decode_all = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

    def decode(text: bytes) -> SimpleNamespace:
        found = decode_all(text)
        named = {f"f{index}": found.get(name, msgspec.UNSET) for index, name in enumerate(names)}
        return SimpleNamespace(**named)

    return decode


def _slash_steps(text: str, position: int) -> tuple[str, ...]:
    steps: list[str] = []
    at = 0
    while at < len(text):
        name = NAME.match(text, at + 1) if text[at] == "/" else None
        if name is None:
            raise PathInvalid("expected /name", position + at)
        steps.append(name.group())
        at = name.end()
    return tuple(steps)


def _bracketed(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    escaped = step.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"
