"""JSON texts of one field as columns: their values and decimals, where texts say it by themselves.

What a text does not say by itself is answered by None: then the closures of `keys/` are asked, one
record after the other, which is what these columns are measured by.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

DIGITS_MAX = 15
"""So many digits every double shows as they were."""

_NOTHING = pa.array([b"null", b'""'], pa.binary())
_DIGITS = r"^-?[0-9]+(\.[0-9]+)?$"
_OPENING = r"^[\[{]"


def values(texts: pa.Array) -> pa.Array | None:
    """Texts of values, null for NULL; None if there is an array or object among them."""
    if pc.any(pc.match_substring_regex(texts, _OPENING)).as_py():
        return None
    nothing = pc.fill_null(pc.is_in(texts, value_set=_NOTHING), True)
    return pc.if_else(nothing, pa.scalar(None, pa.binary()), texts)


def decimals(texts: pa.Array) -> pa.Array | None:
    """The same for numbers; None if anything else is there that is not NULL, or a long number."""
    found = values(texts)
    if found is None or not are_decimals(found):
        return None
    return found


def are_decimals(texts: pa.Array) -> bool:
    """Whether all but nulls are plain decimals that a double is sure of."""
    if (pc.max(pc.binary_length(texts)).as_py() or 0) > DIGITS_MAX:
        return False
    return pc.all(pc.match_substring_regex(texts, _DIGITS)).as_py() is not False
