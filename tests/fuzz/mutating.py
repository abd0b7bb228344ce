"""Random changes of texts and bytes, and pieces that parsers of them tend to get wrong."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, TypeVar

Text = TypeVar("Text", str, bytes)

CHARACTERS: Final = (
    " ", "\t", "\n", "\r", "\0", "\x01", "\x7f", "\x85", "\xa0", ",", "=", "[", "]", "(", ")", "{",
    "}", "/", "\\", "'", '"', ":", ";", "@", "$", ".", "-", "+", "_", "~", "%", "&", "#", "*", ">",
    "<", "|", "!", "?", "`", "0", "1", "9", "a", "Z", "e", "E", "n", "\u0660", "\uff11", "\u0131",
    "\u017f", "\u200b", "\u202e", "\u2028", "\u2029", "\ufeff", "\ufffd", "\xe9", "e\u0301",
    "\U0001f600", "\U0010ffff",
)  # fmt: skip
NUMBERS: Final = (
    "0", "-0", "1", "-1", "00", "01", "1.0", "1.", ".1", "1e0", "1e1", "1E+2", "1e-7", "1e400",
    "-1e400", "1e-400", "9007199254740993", "9223372036854775807", "9223372036854775808",
    "-9223372036854775809", "18446744073709551616", "0.1", "1e999999999999999999999", "9" * 400,
    "0." + "0" * 60 + "1", "+1", "0x1", "1_0", "NaN", "Infinity",
)  # fmt: skip
BYTES: Final = (
    b"\x00", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\xa8", b"\xc2",
    b"\xf0\x9f\x98", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b'"', b"\\", b"\\u", b"\\ud800",
    b"\\udc00", b"\\ud83d\\ude00", b"[", b"]", b"{", b"}", b":", b",", b" ", b"0", b"-", b"e", b".",
    b"null", b"true", b"false", b"\x1f\x8b", b"\x28\xb5\x2f\xfd",
)  # fmt: skip


def mutated(random: Random, text: Text, pieces: Sequence[Text]) -> Text:
    """Return the text with one to four changes, made of these pieces or of itself."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        text = _changed(random, text, pieces)
    return text


def _changed(random: Random, text: Text, pieces: Sequence[Text]) -> Text:
    size = len(text)
    at = random.randrange(size + 1)
    end = min(size, at + random.choice((0, 1, 1, 2, 4, 9, 30)))
    match random.randrange(7):
        case 0:
            return text[:at] + text[end:]
        case 1:
            return text[:at] + random.choice(pieces) + text[at:]
        case 2:
            return text[:at] + random.choice(pieces) + text[end:]
        case 3:
            return text[:end] + text[at:]  # a part twice
        case 4:
            return text[:at]
        case 5:
            other = random.randrange(size + 1)
            part = text[other : other + random.choice((1, 2, 5, 12))]
            return text[:at] + part + text[at:]
        case _:
            part = text[at:end]
            return text[:at] + part * random.choice((2, 3, 40)) + text[end:]


def chunks(random: Random, data: bytes) -> list[bytes]:
    """Return bytes as a network might hand them over, cut anywhere."""
    cut: list[bytes] = []
    most = random.choice((1, 2, 7, 40, 5_000))
    while data:
        size = random.randint(1, most)
        cut.append(data[:size])
        data = data[size:]
    return cut
