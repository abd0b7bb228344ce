"""Tickets: what a browser puts in the address of a stream, as EventSource sends no header."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

import msgspec

from tidegate.app.access.grants import Grants, Subject, parse_grants
from tidegate.app.access.tokens import TokenInvalid
from tidegate.app.refusals import RETRY_LATER_S, Refused

LIFE_MS: Final = 30_000
TICKETS_MAX: Final = 10_000
TICKETS_PER_SUBJECT_MAX: Final = 100
USED_MAX: Final = 10_000
USED_PER_SUBJECT_MAX: Final = 1_000
"""Used tickets that are kept for the return of their streams."""


@dataclass(slots=True)
class Ticket:
    """The right of a subject to open one stream, until it is used or its time is over.

    `target`: the path and query that used it. The same stream may come again, as EventSource
    repeats its address, for as long as the token behind the ticket holds.
    """

    subject: Subject
    unused_until_ms: int
    target: bytes | None = None


_SUBJECT = msgspec.msgpack.Decoder(
    tuple[str, int, list[dict[str, object]], tuple[str, ...], str, str, str, str]
)


def packed(it: Subject) -> bytes:
    """Return a subject for another gateway, which adds the grants of its own policy."""
    own = [grant.document() for grant in it.own]
    names = it.key_id, it.token_id, it.token, it.certificate
    return msgspec.msgpack.encode((it.sub, it.expires_ms, own, it.values, *names))


def unpacked(text: bytes) -> Subject:
    """Return the subject that another gateway has packed."""
    sub, expires_ms, own, values, key, token_id, token, certificate = _SUBJECT.decode(text)
    more = key, token_id, token, certificate
    return Subject(sub, expires_ms, Grants(), parse_grants(own), values, *more)


class Tickets:
    """The tickets that one gateway has issued: they begin with its name if there are others."""

    def __init__(self) -> None:
        self.gateway = ""
        self._unused: dict[str, Ticket] = {}
        # In the order of the last use, so that the first is the one to forget.
        self._used: dict[str, Ticket] = {}

    def issue(self, subject: Subject, now_ms: int) -> tuple[str, int]:
        """Return a new ticket of a subject, and the time at which it is void unless used.

        Raises:
            Refused: limit-reached.
        """
        self._forget(now_ms)
        held = sum(it.subject.sub == subject.sub for it in self._unused.values())
        if len(self._unused) >= TICKETS_MAX or held >= TICKETS_PER_SUBJECT_MAX:
            detail = f"A subject has at most {TICKETS_PER_SUBJECT_MAX} unused tickets at once."
            raise Refused("limit-reached", detail, retry_after_s=RETRY_LATER_S)
        text = f"{self.gateway}." * bool(self.gateway) + secrets.token_urlsafe(24)
        until_ms = min(now_ms + LIFE_MS, subject.expires_ms)
        self._unused[text] = Ticket(subject, until_ms)
        return text, until_ms

    def redeem(self, text: str, target: bytes, now_ms: int) -> Subject:
        """Return the subject of a ticket, and bind the ticket to this stream.

        Args:
            text: the ticket's text.
            target: path and query of the stream.
            now_ms: the wall time.

        Raises:
            TokenInvalid: there is no such ticket, or it was used for another stream.
        """
        found = self._used.get(text) or self._unused.get(text)
        if found is None or now_ms >= found.subject.expires_ms:
            raise TokenInvalid("the ticket is not valid")
        if found.target is None and now_ms >= found.unused_until_ms:
            raise TokenInvalid("the ticket is not valid")
        if found.target not in (None, target):
            raise TokenInvalid("the ticket is not valid")
        self._keep_used(text, found, target)
        return found.subject

    def _keep_used(self, text: str, ticket: Ticket, target: bytes) -> None:
        """Note the use of a ticket; forget those used longest ago where there are too many."""
        is_first = ticket.target is None
        ticket.target = target
        self._unused.pop(text, None)
        self._used.pop(text, None)
        self._used[text] = ticket
        if not is_first:
            return
        # A subject's own go first: its many uses must not end what others may return to.
        sub = ticket.subject.sub
        of_subject = [each for each, it in self._used.items() if it.subject.sub == sub]
        if len(of_subject) > USED_PER_SUBJECT_MAX:
            del self._used[of_subject[0]]
        elif len(self._used) > USED_MAX:
            del self._used[next(iter(self._used))]

    def _forget(self, now_ms: int) -> None:
        unused, used = self._unused.items(), self._used.items()
        self._unused = {text: it for text, it in unused if now_ms < it.unused_until_ms}
        self._used = {text: it for text, it in used if now_ms < it.subject.expires_ms}
