"""Tickets: what a browser puts in the address of a stream, as EventSource sends no header."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from tidegate.app.access.grants import Subject
from tidegate.app.access.tokens import TokenInvalid
from tidegate.app.http.problems import RETRY_LATER, Problem

LIFE_MS: Final = 30_000
TICKETS_MAX: Final = 10_000
TICKETS_PER_SUBJECT_MAX: Final = 100


@dataclass(slots=True)
class Ticket:
    """The right of a subject to open one stream, until it is used or its time is over.

    `target`: the path and query that used it. The same stream may come again, as EventSource
    repeats its address, for as long as the token behind the ticket holds.
    """

    subject: Subject
    unused_until_ms: int
    target: bytes | None = None


class Tickets:
    """The tickets of one gateway; they are no good at another one."""

    def __init__(self) -> None:
        self._tickets: dict[str, Ticket] = {}

    def issue(self, subject: Subject, now_ms: int) -> tuple[str, int]:
        """Return a new ticket of a subject, and the time at which it is void unless used.

        Raises:
            Problem: limit-reached.
        """
        self._forget(now_ms)
        held = sum(it.subject.sub == subject.sub for it in self._tickets.values())
        if len(self._tickets) >= TICKETS_MAX or held >= TICKETS_PER_SUBJECT_MAX:
            detail = f"A subject has at most {TICKETS_PER_SUBJECT_MAX} tickets at once."
            raise Problem("limit-reached", detail, headers=RETRY_LATER)
        text = secrets.token_urlsafe(24)
        until_ms = min(now_ms + LIFE_MS, subject.expires_ms)
        self._tickets[text] = Ticket(subject, until_ms)
        return text, until_ms

    def redeem(self, text: str, target: bytes, now_ms: int) -> Subject:
        """Return the subject of a ticket, and bind the ticket to this stream.

        Args:
            text: of the ticket.
            target: path and query of the stream, without the ticket.
            now_ms: the wall time.

        Raises:
            TokenInvalid: there is no such ticket, or it was used for another stream.
        """
        found = self._tickets.get(text)
        if found is None or now_ms >= found.subject.expires_ms:
            raise TokenInvalid("the ticket is not valid")
        if found.target is None:
            if now_ms >= found.unused_until_ms:
                raise TokenInvalid("the ticket is not valid")
            found.target = target
        elif found.target != target:
            raise TokenInvalid("the ticket is not valid")
        return found.subject

    def _forget(self, now_ms: int) -> None:
        self._tickets = {
            text: it
            for text, it in self._tickets.items()
            if now_ms < (it.unused_until_ms if it.target is None else it.subject.expires_ms)
        }
