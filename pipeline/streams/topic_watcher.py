"""Follows the topics of a gateway that say `engine: spark`: starts and stops their streams."""

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

# An unchanged list is a 304 for each page, so frequent polling is cheap for both sides.
POLL_EVERY_S = 2.0
FIRST_PAGE = "/v1/topics?limit=1000"

Fillable = tuple[Sequence[StreamDefinition], Sequence[str]]
"""The streams that fill topics, and one sentence for each topic that cannot be filled."""


class Streams(Protocol):
    """The streams that run, such as a `StreamRunner`."""

    def join(self, definition: StreamDefinition) -> None:
        """Start a stream."""

    def leave(self, name: str, *, forget: bool) -> None:
        """Stop a stream, and with `forget` remove its checkpoint."""

    def lost(self) -> Collection[str]:
        """Return the streams whose source no longer has what they need."""


class SparkTopicWatcher:
    """Starts and stops streams as topics are created and deleted.

    Args:
        topics: returns the streams to run; raises PipelineError.
        streams: starts and stops them.
        say: prints a line.
        restarts: whether a stream that has lost its source restarts from the records.
        monotonic: seconds; for tests.
    """

    def __init__(
        self,
        topics: Callable[[], Fillable],
        streams: Streams,
        say: Say,
        *,
        restarts: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics = topics
        self._streams = streams
        self._say = say
        self._restarts = restarts
        self._monotonic = monotonic
        self._running: dict[str, StreamDefinition] = {}
        self._due_s = 0.0
        self._said = ""
        self._unfit: Sequence[str] = ()

    def begin(self) -> None:
        """Start the streams of the present topics.

        Raises:
            PipelineError: the gateway does not list its topics.
        """
        self._due_s = self._monotonic() + POLL_EVERY_S
        self._follow(self._wanted())

    def poll(self) -> None:
        """Start streams of new topics and stop those of deleted ones, at most every two seconds.

        While the gateway does not answer, running streams continue.
        """
        if self._monotonic() < self._due_s:
            return
        try:
            wanted = self._wanted()
        except PipelineError as error:
            self._say_once(f"cannot list the topics; running streams go on: {error}")
        else:
            self._follow(wanted)
        self._due_s = self._monotonic() + POLL_EVERY_S

    def _wanted(self) -> dict[str, StreamDefinition]:
        streams, unfit = self._topics()
        # Once for each reason: the list is read every two seconds.
        for reason in unfit:
            if reason not in self._unfit:
                self._say(reason)
        self._unfit = unfit
        return {stream.name: stream for stream in streams}

    def _follow(self, wanted: dict[str, StreamDefinition]) -> None:
        lost = self._streams.lost() if self._restarts else ()
        for name, running in list(self._running.items()):
            new = wanted.get(name)
            if new != running or name in lost:
                # The checkpoint's path names epochs and shape: an equal path may be continued.
                continues = new is not None and new.checkpoint == running.checkpoint
                del self._running[name]
                self._streams.leave(name, forget=not continues or name in lost)
        for name, definition in wanted.items():
            if name not in self._running:
                self._streams.join(definition)
                self._running[name] = definition
        self._say_once("" if wanted else "no topic says engine: spark; waiting for one")

    def _say_once(self, line: str) -> None:
        """Print a line, unless it was the last one."""
        if line and line != self._said:
            self._say(line)
        self._said = line


class TopicList:
    """Reads the list of topics page by page; an unchanged page is answered by its entity tag."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pages: dict[str, TopicsPage] = {}

    def read(self, retry: Retry) -> list[dict[str, Any]]:
        """Return all topics: current definitions, figures as of each page's last change.

        Raises:
            PipelineError: the gateway does not answer, or the answer is no list.
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
