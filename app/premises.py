"""Premises: what subscribing and sessions need of the gateway that they are part of."""

from __future__ import annotations

from typing import Protocol

from app.catalog import Catalog
from app.driver import Driver
from app.outage import Outage
from app.settings import Settings
from app.writer import Writer
from conflation.bookmark import Bookmark


class Premises(Protocol):
    """A gateway, seen from its parts."""

    id: str
    settings: Settings
    driver: Driver
    catalog: Catalog
    writer: Writer
    outage: Outage

    async def catch_up(self, topic: str, seen: Bookmark) -> None:
        """Have here what a reader has seen, or see that the store has gone back."""

    async def look_back(self, topic: str) -> None:
        """Have the engine know what an archive has of a topic, if there is one."""

    def new_session_id(self) -> str:
        """Unguessable, and safe in a path and an event id."""
