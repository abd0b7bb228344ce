"""Errors in paths, keys, JSON texts, filters and values that people write.

KeysError
|- PathInvalid   a path or key spec that cannot be parsed, with its position
|- KeyMissing    a message without a field of its topic's key
|- KeyInvalid    a key field that is not a scalar within 64 bits
|- JsonInvalid   text that is not strict JSON, with the byte where it breaks
|- FilterInvalid a filter or expression that cannot be parsed, with its position
`- TextInvalid   a malformed duration, size, time or rate, with its position
   `- BookmarkInvalid  a malformed bookmark
"""

from __future__ import annotations


class KeysError(ValueError):
    """Base of everything `keys` raises; `code` is the stable problem code."""

    code = "message-invalid"

    def __init__(self, detail: str, position: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.position = position


class PathInvalid(KeysError):
    """A field path or key spec is malformed; `position` is the 0-based character."""

    code = "key-invalid"


class KeyMissing(KeysError):
    """A message lacks a field of its topic's key."""

    code = "key-missing"


class KeyInvalid(KeysError):
    """A key field is null, an object, an array, or a number beyond 64 bits."""

    code = "key-invalid"


class JsonInvalid(KeysError):
    """Not strict JSON; `position` is the 0-based byte where that shows, when known."""

    code = "message-invalid"


class FilterInvalid(KeysError):
    """A filter or expression is malformed or too large; `position` is the 0-based character."""

    code = "filter-invalid"


class TextInvalid(KeysError):
    """A malformed duration, size, time or rate; `position` is the first 0-based wrong character."""

    code = "options-invalid"


class BookmarkInvalid(TextInvalid):
    """A malformed bookmark."""

    code = "bookmark-invalid"
