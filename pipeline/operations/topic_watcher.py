"""Which streams are to run: those of the topics that say `engine: spark`, as they come and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from tidegate.clients.answers import TopicsPage
from tidegate.clients.gateway import Gateway
from tidegate.clients.retry import Retry
from tidegate.pipeline.connection import gateway_at
from tidegate.pipeline.definitions.stream import StreamDefinition
from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.operations.supervisor import Say

LOOK_EVERY_S = 2.0

Fillable = tuple[Sequence[StreamDefinition], Sequence[str]]
"""A stream for each topic that is to be filled; and why others are not, in a sentence each."""


class Crew(Protocol):
    """Those who run streams."""

    def join(self, definition: StreamDefinition) -> None:
        """Start a stream; it goes on from its checkpoint, if that is of the same life."""

    def leave(self, name: str, *, forget: bool) -> None:
        """Stop a stream, and with `forget` remove its checkpoint."""

    def lost(self) -> Collection[str]:
        """Streams that have ended since what they had still to read is gone."""


class SparkTopicWatcher:
    """Has a stream run for each topic, under a clock.

    Args:
        topics: tells what is to be filled; raises PipelineError.
        crew: who does it.
        say: told what nobody else tells.
        restarts: whether a stream whose source is lost begins anew.
        monotonic: seconds; for tests.
    """

    def __init__(
        self,
        topics: Callable[[], Fillable],
        crew: Crew,
        say: Say,
        *,
        restarts: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics = topics
        self._crew = crew
        self._say = say
        self._restarts = restarts
        self._monotonic = monotonic
        self._running: dict[str, StreamDefinition] = {}
        self._due_s = 0.0
        self._told = ""
        self._unfit: Sequence[str] = ()

    def begin(self) -> None:
        """Start those that there are.

        Raises:
            PipelineError: nobody tells.
        """
        self._due_s = self._monotonic() + LOOK_EVERY_S
        self._follow(self._wanted())

    def look(self) -> None:
        """Every two seconds start what is new and stop what is gone, if somebody tells."""
        if self._monotonic() < self._due_s:
            return
        try:
            wanted = self._wanted()
        except PipelineError as error:
            self._tell(f"the topics are not told, what runs goes on: {error}")
        else:
            self._follow(wanted)
        self._due_s = self._monotonic() + LOOK_EVERY_S

    def _wanted(self) -> dict[str, StreamDefinition]:
        streams, unfit = self._topics()
        for reason in unfit:
            if reason not in self._unfit:
                self._say(reason)
        self._unfit = unfit
        return {stream.name: stream for stream in streams}

    def _follow(self, wanted: dict[str, StreamDefinition]) -> None:
        lost = self._crew.lost() if self._restarts else ()
        for name, running in list(self._running.items()):
            new = wanted.get(name)
            if new != running or name in lost:
                is_same_life = new is not None and new.checkpoint == running.checkpoint
                del self._running[name]
                self._crew.leave(name, forget=not is_same_life or name in lost)
        for name, definition in wanted.items():
            if name not in self._running:
                self._crew.join(definition)
                self._running[name] = definition
        self._tell("" if wanted else "no topic says engine: spark; waiting for one")

    def _tell(self, line: str) -> None:
        """Once, until there is something else to tell."""
        if line and line != self._told:
            self._say(line)
        self._told = line


# The topics of a gateway, told again only where a definition has changed.


FIRST_PAGE = "/v1/topics?limit=1000"


class TopicList:
    """Reads the list page by page; a page whose entity tag is known crosses the wire once."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pages: dict[str, TopicsPage] = {}

    def read(self, retry: Retry) -> list[dict[str, Any]]:
        """All topics, definitions as they are now, figures as they were when these changed.

        Raises:
            PipelineError: nobody answers, or the answer is no list.
        """
        topics: list[dict[str, Any]] = []
        pages: dict[str, TopicsPage] = {}
        at: str | None = FIRST_PAGE
        with gateway_at(self._address, retry) as gateway:
            while at is not None:
                page = self._page(gateway, at)
                pages[at] = page
                topics += page.topics
                at = page.following
        self._pages = pages
        return topics

    def _page(self, gateway: Gateway, at: str) -> TopicsPage:
        known = self._pages.get(at)
        page = gateway.topics_page(at, known.etag if known else "") or known
        assert page is not None, "without an entity tag there is always a page"
        return page
