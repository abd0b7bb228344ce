"""Changes that other gateways made to their topics, applied to this gateway's catalog."""

from __future__ import annotations

from tidegate.app.definitions.topic import TopicDefinition, Unusable
from tidegate.app.stores.store import TopicRecord
from tidegate.app.topics.catalog import Catalog
from tidegate.app.topics.registry import CatalogTopic
from tidegate.conflation.frame import RestoredTopic


class RemoteChanges:
    """Applies the changes of other gateways. The caller holds the catalog's `changing`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def adopt(self, record: TopicRecord, kept: RestoredTopic) -> None:
        """Add a topic that was created elsewhere, with its stored state."""
        self._catalog.add_stored(record, kept)

    async def set_aside(self, unusable: Unusable) -> None:
        """Set a topic aside whose new definition cannot be used here."""
        known = self._catalog.served(unusable.name)
        if known is None:
            self._catalog.set_aside(unusable)
        else:
            async with self._catalog.filling.unfilled(known), known.writing:
                self._catalog.set_aside(unusable)
        for entry in self._catalog.entries():
            source = entry.document.gateway_source
            if source is not None and source.topic == unusable.name:
                await self._catalog.filling.cut_off(entry)

    async def redefine(self, known: CatalogTopic, document: TopicDefinition) -> None:
        """Apply a topic's new definition of the same identity."""
        async with self._catalog.filling.refilled(known, document), known.writing:
            record = TopicRecord(known.record.name, document, known.record.epoch)
            self._catalog.define(known, record)

    async def forget(self, known: CatalogTopic) -> None:
        """Remove a topic; its subscriptions end with REMOVED here too."""
        async with self._catalog.filling.unfilled(known), known.writing:
            self._catalog.drop(known)

    def forget_unusable(self, unusable: Unusable) -> None:
        """Remove an unusable topic."""
        self._catalog.drop_unusable(unusable)
