"""Functions of texts: rules filter-15 and filter-4."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

from tests.keys.filter.oracle.patterns import Pattern, found, replaced
from tests.keys.filter.oracle.values import count, elements, first, text

WHITE = b" \t\n\v\f\r"


def _instr(x: Any, part: Any) -> int | None:
    whole, wanted = text(x), text(part)
    return None if whole is None or wanted is None else whole.find(wanted) + 1


def _instr_i(x: Any, part: Any) -> int | None:
    whole, wanted = text(x), text(part)
    return None if whole is None or wanted is None else whole.lower().find(wanted.lower()) + 1


def _streequal_i(a: Any, b: Any) -> bool | None:
    one, other = text(a), text(b)
    return None if one is None or other is None else one.lower() == other.lower()


def _length(x: Any) -> int | None:
    whole = text(x)
    return None if whole is None else len(whole)


def _left(x: Any, n: Any) -> bytes | None:
    whole, length = text(x), count(n)
    return None if whole is None or length is None or length < 1 else whole[:length]


def _right(x: Any, n: Any) -> bytes | None:
    whole, length = text(x), count(n)
    if whole is None or length is None or length < 1:
        return None
    return whole[max(0, len(whole) - length) :]


def _substr(x: Any, start: Any, *n: Any) -> bytes | None:
    whole, begin = text(x), count(start)
    length = count(n[0]) if n else 2**70
    if whole is None or begin is None or length is None or length < 1:
        return None
    offset = max(0, begin - 1) if begin >= 0 else max(0, len(whole) + begin)
    return whole[offset:][:length]


def _concat(*values: Any) -> bytes | None:
    return b"".join(t for t in map(text, values) if t is not None)


def _replace(x: Any, old: Any, new: Any) -> bytes | None:
    whole, wanted = text(x), text(old)
    if whole is None or wanted is None:
        return None
    return whole.replace(wanted, text(new) or b"")


def _regexp_match(x: Any, pattern: Pattern) -> bool | None:
    whole = text(x)
    return None if whole is None else found(pattern, whole)


def _regexp_replace(x: Any, pattern: Pattern, new: Any) -> bytes | None:
    whole = text(x)
    return None if whole is None else replaced(pattern, whole, text(new) or b"")


def _char_value(n: Any) -> bytes | None:
    code = count(n)
    return None if code is None or not 0 <= code <= 255 else bytes([code])


def _array_to_string(x: Any, separator: Any, *null: Any) -> bytes | None:
    instead = text(null[0]) if null else None
    if not isinstance(x, list) and first(x) is None:
        return None
    texts = [
        text(element) if elements(element) else instead
        for element in (x if isinstance(x, list) else [x])
    ]
    return (text(separator) or b"").join(t for t in texts if t is not None)


def _of_bytes(convert: Any) -> Any:
    """A function of one text, NULL for NULL."""

    def function(x: Any) -> Any:
        whole = text(x)
        return None if whole is None else convert(whole)

    return function


TEXTS = {
    "INSTR": _instr,
    "INSTR_I": _instr_i,
    "STREQUAL_I": _streequal_i,
    "LENGTH": _length,
    "LEFT": _left,
    "RIGHT": _right,
    "SUBSTR": _substr,
    "REGEXP_MATCH": _regexp_match,
    "CHAR_VALUE": _char_value,
    "CRC32": _of_bytes(zlib.crc32),
    "CONCAT": _concat,
    "REPLACE": _replace,
    "REGEXP_REPLACE": _regexp_replace,
    "ARRAY_TO_STRING": _array_to_string,
    "TRIM": _of_bytes(lambda whole: whole.strip(WHITE)),
    "LTRIM": _of_bytes(lambda whole: whole.lstrip(WHITE)),
    "RTRIM": _of_bytes(lambda whole: whole.rstrip(WHITE)),
    "REVERSE": _of_bytes(lambda whole: whole[::-1]),
    "UPPER": _of_bytes(bytes.upper),
    "LOWER": _of_bytes(bytes.lower),
    "MD5": _of_bytes(lambda whole: hashlib.md5(whole).hexdigest().encode()),
}
