"""Functions of texts; a text has one character for each of its bytes (rule 93)."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable

from keys.filter.numbers import Scalar, text

_SPACE = " \t\n\v\f\r"
_REFERENCE = re.compile(r"\\(.)", re.DOTALL)


def lower(whole: str) -> str:
    """ASCII letters made small."""
    return whole.encode("latin-1").lower().decode("latin-1")


def upper(whole: str) -> str:
    """ASCII letters made capital."""
    return whole.encode("latin-1").upper().decode("latin-1")


def instr(whole: str, part: str) -> int:
    """Position of a part from 1, 0 if there is none."""
    return whole.find(part) + 1


def instr_i(whole: str, part: str) -> int:
    """As `instr`, whatever the case of ASCII letters."""
    return lower(whole).find(lower(part)) + 1


def streq_i(left: str, right: str) -> bool:
    """Whether two texts are equal but for the case of ASCII letters."""
    return len(left) == len(right) and lower(left) == lower(right)


def left(whole: str, count: int) -> str:
    """The first bytes."""
    return whole[: max(count, 0)]


def right(whole: str, count: int) -> str:
    """The last bytes."""
    return whole[max(len(whole) - count, 0) :] if count > 0 else ""


def substr(whole: str, start: int, count: int | None = None) -> str:
    """Bytes from a start on, which counts from 1, or from the end if negative."""
    begin = max(len(whole) + start, 0) if start < 0 else max(start - 1, 0)
    return whole[begin:] if count is None else whole[begin : begin + max(count, 0)]


def md5(whole: str) -> str:
    """The MD5 sum, in hexadecimal digits."""
    return hashlib.md5(whole.encode("latin-1"), usedforsecurity=False).hexdigest()


def crc32(whole: str) -> int:
    """The CRC-32 of zlib."""
    return zlib.crc32(whole.encode("latin-1"))


def char_value(code: int) -> str | None:
    """The byte with this code."""
    return chr(code) if 0 <= code <= 255 else None


def concat(values: list[Scalar | None], bytes_max: int) -> str:
    """The texts of all values that are not NULL."""
    texts = [text(value) for value in values if value is not None]
    return "".join(texts) if sum(map(len, texts)) <= bytes_max else ""


def replace(values: list[Scalar | None], bytes_max: int) -> str | None:
    """Every occurrence of a part replaced; a replacement that is NULL is empty."""
    whole, old, new = values
    if whole is None or old is None:
        return None
    before, old_text, new_text = text(whole), text(old), "" if new is None else text(new)
    if max(len(before), len(old_text), len(new_text)) > bytes_max:
        return None
    growth = before.count(old_text) * (len(new_text) - len(old_text))
    return before.replace(old_text, new_text) if len(before) + growth <= bytes_max else None


def template(new: str, groups: tuple[str, ...]) -> str:
    r"""A replacement with `\0` to `\9` filled in (rule 107); `groups` begins with the match."""

    def filled(reference: re.Match[str]) -> str:
        code = reference.group(1)
        if code not in "0123456789":
            return code
        return groups[int(code)] if int(code) < len(groups) else ""

    return _REFERENCE.sub(filled, new)


# Each takes texts, to look at (t), seek in (f) or rewrite (s), and counts (c); NULL in, NULL out.
FUNCTIONS: dict[str, tuple[str, Callable[..., Scalar | None]]] = {
    "INSTR": ("ff", instr),
    "INSTR_I": ("ff", instr_i),
    "STREQUAL_I": ("ff", streq_i),
    "LENGTH": ("t", len),
    "LEFT": ("tc", left),
    "RIGHT": ("tc", right),
    "SUBSTR": ("tcc", substr),
    "TRIM": ("s", lambda whole: whole.strip(_SPACE)),
    "LTRIM": ("s", lambda whole: whole.lstrip(_SPACE)),
    "RTRIM": ("s", lambda whole: whole.rstrip(_SPACE)),
    "REVERSE": ("s", lambda whole: whole[::-1]),
    "UPPER": ("s", upper),
    "LOWER": ("s", lower),
    "MD5": ("s", md5),
    "CRC32": ("s", crc32),
    "CHAR_VALUE": ("c", char_value),
}
