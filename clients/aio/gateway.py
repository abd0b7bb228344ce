"""The HTTP API of a gateway as coroutines: the methods of `Gateway`, for an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import httpx2

from tidegate.clients import DEFAULT_ADDRESS, requests
from tidegate.clients.aio.live import AsyncLive
from tidegate.clients.aio.publisher import AsyncPublisher
from tidegate.clients.aio.session import AsyncSession
from tidegate.clients.aio.subscription import AsyncSubscription
from tidegate.clients.aio.transport import AsyncTransport
from tidegate.clients.answers import Fields, Published
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.live.request import LiveRequest
from tidegate.clients.message import lines_of
from tidegate.clients.polling import Polling
from tidegate.clients.publishing.outbox import DELIVERY_S, LIMITS, Batch, Limits, Outbox
from tidegate.clients.requests import Defined, Post, RecordKey, new_key, subscribing, topic_path
from tidegate.clients.retry import PATIENCE_S, TOPIC_UNKNOWN, Retry, Trouble
from tidegate.clients.stream import Stream
from tidegate.clients.token import Token, TokenSource
from tidegate.clients.transport import ANSWER_SECONDS_MAX, Given


class AsyncGateway:
    """One gateway, for one event loop; close it, or use it as an asynchronous context manager.

    Methods, arguments and errors are those of `Gateway`.

    Args:
        base_url: such as `http://127.0.0.1:8080`; of several gateways that share a bus, the next
            one is used when one does not answer.
        answer_seconds_max: how long to wait for an answer, or for its next piece.
        patience_s: how long a failed publish is retried; 0 for no retry.
        every: the retries of every request after any temporary failure; replaces `patience_s`.
        token: sent with every request, a text or a function that returns it; by default that of
            the environment.

    Raises:
        ValueError: `base_url` is not an http address.
    """

    def __init__(
        self,
        base_url: Given = DEFAULT_ADDRESS,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
        patience_s: float = PATIENCE_S,
        every: Retry | None = None,
        token: TokenSource = None,
    ) -> None:
        retry = Retry(patience_s)
        self._transport = AsyncTransport(
            base_url, answer_seconds_max, retry, every, Token.of(token)
        )

    @property
    def base_url(self) -> str:
        """The address in use, without a trailing slash."""
        return self._transport.addresses.current

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    @property
    def administration(self) -> AsyncAdministration:
        """Topics by their entity tags, and the sessions of every client."""
        return AsyncAdministration(self._transport)

    # Topics

    async def put_topic(self, topic: str, definition: Fields) -> bool:
        """Create or replace a topic; return True if it is new."""
        return (await self._transport.ask(requests.put_topic(topic, definition))).is_new

    async def topic(self, topic: str) -> Fields:
        """Return a topic's definition and live figures."""
        return (await self._transport.ask(requests.topic(topic))).document

    async def find_topic(self, topic: str) -> Fields | None:
        """Return a topic as `topic` does; None if there is no such topic."""
        try:
            return await self.topic(topic)
        except GatewayProblem as problem:
            if problem.code != TOPIC_UNKNOWN:
                raise
            return None

    async def topics(self, prefix: str = "") -> AsyncIterator[Fields]:
        """Yield every topic whose name begins with `prefix`, by name; fetched in pages."""
        following: str | None = requests.topics_path(prefix)
        while following:
            page = await self._transport.ask(requests.topics_page(following))
            assert page is not None, "nothing is known, so there is a page"
            for topic in page.topics:
                yield topic
            following = page.following

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and its messages; its subscriptions end."""
        await self._transport.ask(requests.delete_topic(topic))

    # Messages

    async def publish(
        self,
        topic: str,
        messages: Any,
        producer: str | None = None,
        sequence: int | None = None,
        *,
        delta: bool = False,
        idempotency_key: str | None = None,
        trouble: Trouble | None = None,
    ) -> Published:
        """Publish messages in one request, all or none, and exactly once; see `Gateway.publish`."""
        # A retry needs a name for the request, or a lost answer would publish it twice.
        if idempotency_key is None and producer is None and self._transport.retry.seconds_max > 0:
            idempotency_key = new_key()
        lines = lines_of(messages)
        post = Post.of(lines, producer=producer, sequence=sequence, idempotency_key=idempotency_key)
        return await self._transport.ask(requests.publish(topic, post, delta=delta), trouble)

    def publisher(
        self,
        topic: str,
        limits: Limits = LIMITS,
        patience_s: float = DELIVERY_S,
        producer: str | None = None,
    ) -> AsyncPublisher:
        """Return a publisher of batches that count once each; see `Gateway.publisher`."""

        async def send(batch: Batch) -> Published:
            publish = requests.publish(topic, batch.post, caller_retries=True)
            return await self._transport.ask(publish)

        return AsyncPublisher(send, Outbox(limits, producer), Retry(patience_s))

    def sow(self, topic: str, **query: str | int | None) -> AsyncIterator[bytes]:
        """Yield the state of the world as JSON texts; `query` is that of `Gateway.sow`."""
        return self._transport.lines(f"{topic_path(topic)}/sow", query)

    async def delete_records(
        self, topic: str, *, record_key: RecordKey | None = None, filter: str | None = None
    ) -> int:
        """Delete the record of a key, or all that match a filter; see `Gateway.delete_records`."""
        return await self._transport.ask(requests.delete_records(topic, record_key, filter))

    async def messages(
        self,
        topic: str,
        from_: str | None = None,
        limit: int | None = None,
        *,
        last: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield envelopes of the journal as JSON texts, oldest first; see `Gateway.messages`."""
        path = f"{topic_path(topic)}/messages"
        if limit is not None or last is not None:
            query = {"from": from_, "limit": limit, "last": last}
            async for line in self._transport.lines(path, query):
                yield line
            return
        page: requests.JournalPage | None = requests.JournalPage(from_)
        while page is not None:
            newest = b""
            async for newest in self._transport.lines(path, page.query):
                yield newest
            page = page.following(newest)

    # Subscriptions

    def subscribe(
        self,
        topic: str,
        *,
        options: str = "",
        filter: str | None = None,
        order_by: str | None = None,
        command: str | None = None,
        format: str | None = None,
        last_event_id: str = "",
        for_s: float | None = None,
        trouble: Trouble | None = None,
    ) -> AsyncSubscription:
        """Subscribe; return an asynchronous iterator of events; see `Gateway.subscribe`."""
        params = subscribing(options, filter, order_by, command, format)
        polling = Polling(topic, params)
        stream = Stream.of(topic, params, last_event_id, trouble, polling)
        return self._subscription(topic, params, stream, for_s)

    def live(
        self,
        topic: str,
        *,
        options: str = "",
        filter: str | None = None,
        order_by: str | None = None,
        command: str | None = None,
        deltas: bool = False,
        removals: bool | None = None,
        trouble: Trouble | None = None,
    ) -> AsyncLive:
        """Subscribe; return a dict that follows the topic by itself; see `Gateway.live`."""
        request = LiveRequest(topic, options, filter, order_by, command, deltas, removals)

        def subscribe(params: Mapping[str, str]) -> AsyncSubscription:
            polling = Polling(topic, params)
            stream = Stream.of(topic, params, trouble=trouble, polling=polling)
            return self._subscription(topic, params, stream)

        return AsyncLive(request, subscribe)

    async def open_session(
        self,
        *,
        limits: Fields | None = None,
        conflated: bool = True,
        for_s: float | None = None,
        trouble: Trouble | None = None,
    ) -> AsyncSession:
        """Open a session for many subscriptions on one stream; see `Gateway.open_session`."""
        opened = await self._transport.ask(requests.open_session(limits, conflated))

        async def ask(method: str, path: str, document: Fields | None) -> Fields:
            about = requests.about_session(opened["session"], method, path, document)
            return await self._transport.ask(about)

        async def connect(after: str) -> httpx2.Response:
            path, patience_s = opened["events"], stream.patience_s
            return await self._transport.open_stream("GET", path, after, patience_s)

        stream = Stream(is_session=True, trouble=trouble)
        events = AsyncSubscription(connect, stream, for_s=for_s)
        return AsyncSession(opened["session"], ask, events)

    async def explain(self, topic: str, **request: str | None) -> Fields:
        """Return what subscribing would do, without doing it; see `Gateway.explain`."""
        return await self._transport.ask(requests.explain(topic, **request))

    def _subscription(
        self,
        topic: str,
        params: Mapping[str, str],
        stream: Stream,
        for_s: float | None = None,
    ) -> AsyncSubscription:
        async def connect(after: str) -> httpx2.Response:
            method, given = stream.opening(params)
            path = f"{topic_path(topic)}/subscribe"
            patience_s = stream.patience_s
            return await self._transport.open_stream(method, path, after, patience_s, **given)

        ask = self._transport.ask
        return AsyncSubscription(connect, stream, for_s=for_s, ask=ask)


class AsyncAdministration:
    """Requests of an administrator; arguments and errors are those of `Administration`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._ask = transport.ask

    # Topics

    async def topic(self, topic: str) -> Defined:
        """Return a topic with its definition and entity tag."""
        return await self._ask(requests.topic(topic))

    async def put_topic(
        self,
        topic: str,
        definition: Fields,
        *,
        if_match: str | None = None,
        only_new: bool = False,
    ) -> Defined:
        """Create a topic, or replace its definition; `only_new`: refuse one that is there."""
        put = requests.put_topic(topic, definition, if_match=if_match, only_new=only_new)
        return await self._ask(put)

    async def patch_topic(
        self, topic: str, patch: Fields, *, if_match: str | None = None
    ) -> Defined:
        """Change what a JSON Merge Patch names; None restores a default."""
        return await self._ask(requests.patch_topic(topic, patch, if_match=if_match))

    async def delete_topic(self, topic: str, *, if_match: str | None = None) -> None:
        """Delete a topic and its messages; its subscriptions end."""
        await self._ask(requests.delete_topic(topic, if_match=if_match))

    # Sessions

    async def sessions(self) -> AsyncIterator[Fields]:
        """Yield every open session, by id; they are fetched in pages."""
        following: str | None = None
        while True:
            page = await self._ask(requests.sessions_page(following))
            for session in page["sessions"]:
                yield session
            following = page.get("next")
            if not following:
                return

    async def session(self, session: str) -> Fields:
        """Return a session with its subscriptions; for a while also one that has ended."""
        return await self._ask(requests.about_session(session))

    async def tune_session(self, session: str, **tuning: object) -> Fields:
        """Set `limits` or `conflated` of a session, and return it."""
        return await self._ask(requests.about_session(session, "PATCH", document=tuning))

    async def close_session(self, session: str) -> None:
        """Close a session; its reader gets a goodbye and does not reconnect."""
        await self._ask(requests.about_session(session, "DELETE"))
