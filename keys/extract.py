"""Key specs compiled: one partial decode of a message, its canonical key out."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from keys.canonical import canonical_or_own, canonical_scalar, join_key
from keys.errors import KeyInvalid, KeyMissing
from keys.path import FieldPath, Getter, fields_decoder, getter
from keys.spec import KeySpec

KeyOf = Callable[[bytes], str]
FieldsOf = Callable[[bytes], list[bytes | None]]


def record_key(spec: KeySpec) -> KeyOf:
    """`payload -> SOW key`: every field a present scalar, not null.

    The returned function takes strict JSON text and raises `KeyMissing` or `KeyInvalid`.
    """
    fields_of = read_fields(spec.paths)
    names = [str(path) for path in spec.paths]

    def key_of(payload: bytes) -> str:
        fields: list[str] = []
        for name, text in zip(names, fields_of(payload), strict=True):
            if text is None:
                raise KeyMissing(f"the message has no field {name}")
            try:
                fields.append(canonical_scalar(text))
            except KeyInvalid as error:
                raise KeyInvalid(f"{name}: {error.detail}") from None
        return join_key(fields)

    return key_of


def conflation_key(spec: KeySpec) -> KeyOf:
    """`payload -> conflation key`: a field that is missing counts as null.

    A field that is no scalar within 64 bits has its own spelling: unlike values stay apart.
    """
    fields_of = read_fields(spec.paths)

    def key_of(payload: bytes) -> str:
        return join_key([_or_null(text) for text in fields_of(payload)])

    return key_of


def read_fields(paths: tuple[FieldPath, ...]) -> FieldsOf:
    """`payload -> JSON text of each path's field`, None where absent; decodes nothing else."""
    if any(isinstance(path.steps[0], int) for path in paths):
        getters = [getter(path.steps) for path in paths]
        return lambda payload: [field(payload) for field in getters]
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
