"""Who reads a session, as the session knows it."""

from __future__ import annotations

from typing import Protocol

from app.consumer import Consumer
from app.sessions.asked import Asked
from conflation.outputs import CloseReason


class Reading(Protocol):
    """The session's end towards a stream: `app.sessions.reader`."""

    consumer: Consumer

    @property
    def auto(self) -> object:
        """What looks after its intervals."""

    @property
    def unsent_bytes(self) -> int:
        """What its socket holds that the peer has not acknowledged."""

    def seat(self, asked: Asked, topic: str, *, announced: bool = False) -> object:
        """Have the engine seat one topic of a subscription, as granted."""

    def change(self, asked: Asked, topic: str, *, turns: bool) -> None:
        """Have the engine go over to what is granted now."""

    def unsubscribe(self, name: str) -> bool:
        """Have the engine end a subscription and tell so; False if it has no seat of it."""

    def tune(self) -> None:
        """Have the engine take the session's limits over."""

    def send_away(self, reason: CloseReason, retry_ms: int) -> None:
        """Another reader takes its place."""

    def close(self) -> None:
        """Its peer is gone."""
