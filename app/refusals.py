"""Refusals: the table of codes, and the exceptions with which the gateway refuses a request.

Codes, statuses and titles are part of the contract. The statuses are those of HTTP; events of a
stream contain them, too. A refusal never repeats what a client sent, except the name of an unknown
field, shortened, in its pointer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.conflation.errors import LimitReached
from tidegate.keys.errors import Refusal

TYPE_PREFIX = "urn:tidegate:problem:"
RETRY_LATER_S = 60
"""For limits on sessions or topics, which are usually freed within minutes, not seconds."""

CODES: Final[Mapping[str, tuple[int, str]]] = {
    "topic-unknown": (404, "There is no such topic"),
    "topic-conflict": (409, "The topic does not allow this change"),
    "topic-invalid": (400, "Not a valid topic"),
    "topic-read-only": (403, "The topic is read-only"),
    "topic-in-use": (409, "The topic is another's source"),
    "source-cycle": (409, "The topic would be its own source"),
    "policy-invalid": (422, "Not a valid conflation policy"),
    "key-invalid": (422, "Not a valid key"),
    "key-missing": (422, "A key field is missing"),
    "options-invalid": (400, "Not valid options"),
    "filter-invalid": (400, "Not a valid filter"),
    "message-invalid": (400, "Not a valid message"),
    "message-too-large": (413, "Too large"),
    "schema-violation": (422, "The message does not fit the topic's schema"),
    "bookmark-invalid": (400, "Not a valid bookmark"),
    "bookmark-expired": (410, "The journal does not go on from there"),
    "record-unknown": (404, "There is no such record"),
    "session-unknown": (404, "There is no such session"),
    "subscription-unknown": (404, "There is no such subscription"),
    "limit-reached": (429, "A limit is reached"),
    "idempotency-conflict": (409, "The idempotency key was used for another request"),
    "producer-fenced": (409, "A newer run of the producer has committed"),
    "unauthenticated": (401, "Not authenticated"),
    "forbidden": (403, "Not permitted"),
    "csrf": (403, "The request may not come from this page"),
    "precondition-failed": (412, "The precondition does not hold"),
    "unsupported-media-type": (415, "The content type is not supported"),
    "unsupported-encoding": (415, "The content encoding is not supported"),
    "not-acceptable": (406, "No acceptable content type"),
    "uri-too-long": (414, "The request target is too long"),
    "headers-too-large": (431, "The request header is too large"),
    "request-timeout": (408, "The request took too long"),
    "host-not-allowed": (421, "The host is not served here"),
    "origin-not-allowed": (403, "The origin is not allowed"),
    "bus-unavailable": (503, "The store or the bus is out"),
    "not-ready": (503, "Not ready"),
    "method-not-allowed": (405, "The method is not allowed"),
    "not-found": (404, "Not found"),
    "internal": (500, "Internal error of the gateway"),
}


class Refused(Refusal):
    """A refusal by the gateway. Raise one anywhere; the client gets its code and its detail.

    Args:
        code: one of `CODES`.
        detail: one sentence for a person. It repeats nothing that the client sent except names of
            topics and options, whose characters are harmless wherever they are shown.
        position: 0-based character in an options string or a filter.
        line: 1-based line of an NDJSON body.
        pointer: JSON pointer to the field at fault.
        retry_after_s: when to try again; None if another attempt would be refused, too.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        position: int | None = None,
        line: int | None = None,
        pointer: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(detail, position)
        self.code = code
        # A KeyError here is a bug: the contract lists all codes.
        self.status, self.title = CODES[code]
        self.line = line
        self.pointer = pointer
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"

    def document(self) -> dict[str, object]:
        """Return the problem document (RFC 9457) for an answer or an event."""
        document: dict[str, object] = {
            "type": TYPE_PREFIX + self.code,
            "title": self.title,
            "status": self.status,
            "detail": _encodable(self.detail),
            "code": self.code,
        }
        for name in ("position", "line", "pointer"):
            value = getattr(self, name)
            if value is not None:
                document[name] = _encodable(value) if isinstance(value, str) else value
        return document


class TokenRefused(Refused):
    """An invalid token; `reason` is its error code in RFC 6750, section 3.1."""

    def __init__(self, detail: str, reason: str = "invalid_token") -> None:
        super().__init__("unauthenticated", detail)
        self.reason = reason


def topic_unknown(name: str) -> Refused:
    """Return the refusal of a topic that does not exist; `name` is a valid name."""
    return Refused("topic-unknown", f"There is no topic {name}.")


class Unavailable(Refused):
    """The store or the bus is out, and the request may succeed in a moment."""

    def __init__(self, detail: str = "The bus is unavailable; try again.") -> None:
        super().__init__("bus-unavailable", detail, retry_after_s=1)


def refused(refusal: Refusal) -> Refused:
    """Return a refusal of the engine or of `keys` as one of the gateway."""
    if isinstance(refusal, Refused):
        return refusal
    wait_s = RETRY_LATER_S if isinstance(refusal, LimitReached) else None
    detail = f"{refusal.detail}."
    return Refused(refusal.code, detail, position=refusal.position, retry_after_s=wait_s)


def unknown_field(
    code: str, document: Iterable[str], known: Iterable[str], at: str = ""
) -> Refused:
    """Return the refusal of the first unknown field; its pointer has the name, shortened.

    Args:
        code: the refusal's code.
        document: the names of the fields that were sent.
        known: the names of the fields that exist.
        at: the JSON pointer to the object with the fields.
    """
    names = tuple(known)
    name = next(name for name in document if name not in names)
    detail = f"Unknown field; known: {', '.join(names)}."
    return Refused(code, detail, pointer=f"{at}/{reference_token(name)}")


def reference_token(part: object) -> str:
    """Return one reference token of a JSON pointer (RFC 6901), shortened."""
    # It may be the client's own text, which could be a megabyte.
    return str(part)[:64].replace("~", "~0").replace("/", "~1")


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which no encoder takes."""
    # A name from the client may contain one; an answer that cannot be encoded would be a 500.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
