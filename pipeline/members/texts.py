"""Members of many messages as columns of their JSON texts.

A number keeps its spelling, so what is computed from it is as exact as from a single message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.jsontext import NULL
from tidegate.keys.path import FieldPath, has_invalid_struct_character
from tidegate.pipeline.intervals import Column
from tidegate.pipeline.members.decoding import LINES_AT_ONCE, LineDecoder

MISSING = -1
LENGTH_MAX = 15  # of a number's text: a double keeps as many digits, and tells any two apart
LEAST, GREATEST = 1e-13, 1e15  # what so few characters spell without an exponent

Members = Mapping[str, pa.Array]
"""The texts of members by name: binary, one for each message, null where it has none."""


def top_level(path: FieldPath) -> str | None:
    """Return the name of a top-level field that a decoder can have; None for any other path."""
    [first, *deeper] = path.steps
    return (
        None if deeper or isinstance(first, int) or has_invalid_struct_character(first) else first
    )


def members_of(bodies: pa.Array, names: Sequence[str]) -> Members | None:
    """Return the texts of some members of objects.

    Args:
        bodies: JSON (binary); null for none.
        names: those of the members.

    Returns:
        The texts, without the white space around them. Of members of one name the last counts.
        None where a body is no object, is odd (`LineDecoder.decode`), or no decoder has the names.
    """
    decoder = _decoder(tuple(names))
    there = bodies.drop_null() if bodies.null_count else bodies
    pieces = []
    for start in range(0, max(1, len(there)), LINES_AT_ONCE):
        found = None if decoder is None else decoder.decode(there.slice(start, LINES_AT_ONCE))
        if found is None:
            return None
        pieces.append(found.texts())
    members = joined(pieces)
    return members if len(there) == len(bodies) else spread(members, bodies.is_valid())


def joined(pieces: Sequence[Members]) -> Members:
    """Return the members of messages in pieces, one after the other; there is a first piece."""
    return {name: pa.concat_arrays([each[name] for each in pieces]) for name in pieces[0]}


def spread(members: Members, has_body: pa.Array) -> Members:
    """Return the members of messages among others that have none."""
    is_there = np.asarray(has_body)
    places = pa.array(np.cumsum(is_there) - 1, mask=~is_there)
    return {name: texts.take(places) for name, texts in members.items()}


@lru_cache(maxsize=64)
def _decoder(names: tuple[str, ...]) -> LineDecoder | None:
    return LineDecoder.of({}, names)


def without_nulls(texts: pa.Array) -> pa.Array:
    """Return a member as one that is missing where it is null."""
    is_null = pc.equal(texts, pa.scalar(NULL))
    return pc.if_else(is_null, pa.scalar(None, pa.binary()), texts)


def doubles(texts: pa.Array) -> Column | None:
    """Return a member's texts as numbers, NaN where it is missing; None if one is no number."""
    # Arrow reads more than JSON has, such as `nan`, but no other JSON value. It rounds correctly.
    try:
        return np.asarray(pc.cast(texts.view(pa.string()), pa.float64()))
    except pa.ArrowInvalid:
        return None


def exact_numbers(texts: pa.Array) -> Column | None:
    """Return a double for each object that compares as its text does; None if one may not.

    NaN where the member is missing.
    """
    if (pc.max(pc.binary_length(texts)).as_py() or 0) > LENGTH_MAX:
        return None
    found = doubles(texts)
    if found is None:
        return None
    sizes = np.abs(found)
    is_zero = sizes == 0
    if not (np.isnan(found) | is_zero | ((sizes >= LEAST) & (sizes < GREATEST))).all():
        return None
    if is_zero.any():
        # 1e-999 is no zero.
        zeros = texts.filter(pa.array(is_zero)).view(pa.string())
        if pc.any(pc.match_substring(zeros, "e", ignore_case=True)).as_py():
            return None
    return found
