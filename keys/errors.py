"""Errors in paths, keys, JSON texts, filters and values that people write.

Refusal        what a caller is refused with, here and in every part above
`- KeysError
   |- PathInvalid   a path or key spec that cannot be parsed, with its position
   |- KeyMissing    a message without a field of its topic's key
   |- KeyInvalid    a key field that is not a scalar within 64 bits
   |- JsonInvalid   text that is not strict JSON, with the byte where it breaks
   |- FilterInvalid a filter or expression that cannot be parsed, with its position
   `- TextInvalid   a malformed duration, size, time or rate, with its position
      `- BookmarkInvalid  a malformed bookmark
"""

from __future__ import annotations


class Refusal(Exception):
    """What a caller is refused with.

    Attributes:
        code: the stable code that users see.
        detail: what is wrong, for a person.
        position: 0-based character or byte of the text at fault; None where there is no such text.
    """

    # One without a code of its own reaches users as a fault of the gateway, which it then is.
    code = "internal"

    def __init__(self, detail: str, position: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.position = position


class KeysError(Refusal, ValueError):
    """Base of everything `keys` raises."""

    code = "message-invalid"


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
