"""The topics of a gateway, told again only where a definition has changed."""

from __future__ import annotations

from typing import Any

from pipeline.gateway import Gateway, TopicsPage

FIRST_PAGE = "/v1/topics?limit=1000"


class TopicList:
    """Reads the list page by page; a page whose entity tag is known crosses the wire once."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pages: dict[str, TopicsPage] = {}

    def read(self, patience_s: float) -> list[dict[str, Any]]:
        """All topics, definitions as they are now, figures as they were when these changed.

        Raises:
            PipelineError: nobody answers for so many seconds, or the answer is no list.
        """
        topics: list[dict[str, Any]] = []
        pages: dict[str, TopicsPage] = {}
        at: str | None = FIRST_PAGE
        with Gateway(self._address, patience_s) as gateway:
            while at is not None:
                page = self._page(gateway, at)
                pages[at] = page
                topics += page.topics
                at = page.following
        self._pages = pages
        return topics

    def _page(self, gateway: Gateway, at: str) -> TopicsPage:
        known = self._pages.get(at)
        page = gateway.topics(at, known.etag if known else "") or known
        assert page is not None, "without an entity tag there is always a page"
        return page
