"""Strict JSON text (RFC 8259): checked as a whole, without building a value."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tidegate.keys.errors import JsonInvalid

DEPTH_MAX = 64

_check_syntax = msgspec.json.Decoder(msgspec.Raw).decode
_BYTE = re.compile(r"\(byte (\d+)\)")
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def check_json(text: bytes) -> None:
    """Check one JSON value: UTF-8, syntax, no lone surrogate, at most 64 levels.

    Raises:
        JsonInvalid: with the byte where it breaks, when that is known.
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise JsonInvalid("not valid UTF-8", error.start) from None
    if text.count(b"[") + text.count(b"{") > DEPTH_MAX:
        _check_depth(text)
    try:
        _check_syntax(text)
    except msgspec.DecodeError as error:
        raise _invalid(text, str(error)) from None


def decoded(text: bytes) -> Any:
    """The value of checked JSON text.

    Raises:
        JsonInvalid: a number that no 64-bit float holds: JSON that is kept, but has no value here.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:
        raise JsonInvalid("a number out of range", len(text)) from None


def one_line(text: bytes) -> bytes:
    """Checked JSON text without line breaks: inside strings it has none, so spaces will do."""
    stripped = text.strip()
    if b"\n" in stripped or b"\r" in stripped:
        return stripped.translate(_LINE_BREAKS)
    return stripped


def _invalid(text: bytes, reason: str) -> JsonInvalid:
    found = _BYTE.search(reason)
    reason = _BYTE.sub("", reason).removeprefix("JSON is malformed: ").strip()
    if "truncated" in reason and b"\\ud" in text.lower():
        reason = "lone surrogate, or the text breaks off"
    return JsonInvalid(f"not JSON: {reason}", int(found[1]) if found else len(text))


def _check_depth(text: bytes) -> None:
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        bracket = token.group()
        if bracket in (b"[", b"{"):
            depth += 1
            if depth > DEPTH_MAX:
                raise JsonInvalid(f"deeper than {DEPTH_MAX} levels", token.start())
        elif bracket in (b"]", b"}"):
            depth -= 1
