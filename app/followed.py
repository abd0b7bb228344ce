"""Followed: what other gateways have made of their topics holds in this one's catalog too."""

from __future__ import annotations

from app.catalog import Catalog
from app.entry import Entry
from app.stores.store import Kept, TopicRecord
from app.topic_document import TopicDocument


class Followed:
    """The catalog as others write it. Whoever calls holds `changing` of the catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def adopt(self, record: TopicRecord, kept: Kept) -> None:
        """A topic is there that was made elsewhere, with what is kept of it.

        Raises:
            EngineError: it cannot be filled here; it is not there either then.
        """
        self._catalog.filling.prepare(record.name, record.document)
        self._catalog.filling.start(self._catalog.restore(record, kept))

    async def redefine(self, known: Entry, document: TopicDocument) -> None:
        """A topic has got another document of the same identity elsewhere."""
        async with self._catalog.filling.refilled(known, document), known.writing:
            record = TopicRecord(known.record.name, document, known.record.epoch)
            self._catalog.define(known, record)

    async def forget(self, known: Entry) -> None:
        """A topic was deleted elsewhere; its subscriptions end with REMOVED here too."""
        async with self._catalog.filling.unfilled(known), known.writing:
            self._catalog.drop(known)
