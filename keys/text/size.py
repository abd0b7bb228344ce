"""Sizes in bytes: an integer and a unit."""

from __future__ import annotations

import re

from tidegate.keys.errors import TextInvalid

_BYTES = {
    "b": 1,
    "kb": 1_000,
    "mb": 1_000_000,
    "gb": 1_000_000_000,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_PRINTED = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))

SIZE_MAX = (1 << 63) - 1

# re.ASCII: an Arabic or full-width digit is not a digit here. Nineteen digits: a size is printed in
# bytes where no larger unit will do, and what is printed must be readable again.
_SIZE = re.compile(r"([0-9]{1,19})(b|[kmg]i?b)", re.ASCII | re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{0,19}", re.ASCII)


def parse_size(text: str, position: int = 0) -> int:
    """Parse `8MiB` to bytes; units B KB MB GB KiB MiB GiB in any case.

    Args:
        text: the size and nothing else.
        position: the offset of this text in the text that was sent.

    Raises:
        TextInvalid: what was expected, at the first character that does not fit.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        digits = _DIGITS.match(text)
        raise TextInvalid(
            "expected an integer and a unit (B KB MB GB KiB MiB GiB), such as 8MiB",
            position + (digits.end() if digits else 0),
        )
    size_bytes = int(found[1]) * _BYTES[found[2].lower()]
    if size_bytes > SIZE_MAX:
        raise TextInvalid("expected a size within 64 bits", position)
    return size_bytes


def size_text(size_bytes: int) -> str:
    """Return the size in the largest binary unit that loses nothing: 16_777_216 is `16MiB`."""
    for unit, unit_bytes in _PRINTED:
        if size_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes}{unit}"
    return f"{size_bytes}B"
