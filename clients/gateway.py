"""The HTTP API of a gateway as methods: topics, publishing, state of the world, subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from tempfile import TemporaryFile
from typing import Any, Self

import httpx2

from tidegate.clients import DEFAULT_ADDRESS, requests
from tidegate.clients.administration import Administration
from tidegate.clients.answers import Fields, Journal, Published, TopicsPage
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.live.live import Live
from tidegate.clients.live.request import LiveRequest
from tidegate.clients.message import lines_of
from tidegate.clients.polling import Polling
from tidegate.clients.publishing.outbox import DELIVERY_S, LIMITS, Batch, Limits, Outbox
from tidegate.clients.publishing.publisher import Publisher
from tidegate.clients.requests import NDJSON, Post, RecordKey, new_key, subscribing, topic_path
from tidegate.clients.retry import PATIENCE_S, TOPIC_UNKNOWN, Retry, Trouble
from tidegate.clients.session import Session
from tidegate.clients.stream import Stream
from tidegate.clients.subscription import Subscription
from tidegate.clients.token import Token, TokenSource
from tidegate.clients.transport import ANSWER_SECONDS_MAX, Given, Transport

PIECE_BYTES = 4 * 1024 * 1024  # read at once from a file that may be larger than memory


class Gateway:
    """One gateway. Safe to share between threads; close it, or use it as a context manager.

    Every method raises GatewayProblem when the gateway refuses, GatewayUnreachable when it cannot
    be reached, and AnswerInvalid when the answer is not one of a gateway. Subscriptions reconnect
    by themselves. A publish, a stage or a commit is retried when the answer was lost or the gateway
    is out for a while, and takes effect once. Other requests are sent once, unless `every` is set.

    Args:
        base_url: such as `http://127.0.0.1:8080`; of several gateways that share a bus, the next
            one is used when one does not answer.
        answer_seconds_max: how long to wait for an answer, or for its next piece.
        patience_s: how long a failed publish is retried; 0 for no retry.
        every: the retries of every request after any temporary failure (429, 5xx, no answer);
            replaces `patience_s`.
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
        self._transport = Transport(
            base_url, answer_seconds_max, Retry(patience_s), every, Token.of(token)
        )

    @property
    def base_url(self) -> str:
        """The address in use, without a trailing slash."""
        return self._transport.addresses.current

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    @property
    def administration(self) -> Administration:
        """Topics by their entity tags, and the sessions of every client."""
        return Administration(self._transport)

    # Topics

    def put_topic(self, topic: str, definition: Fields) -> bool:
        """Create or replace a topic; return True if it is new."""
        return self.administration.put_topic(topic, definition).is_new

    def topic(self, topic: str) -> Fields:
        """Return a topic's definition and live figures."""
        return self.administration.topic(topic).document

    def find_topic(self, topic: str) -> Fields | None:
        """Return a topic as `topic` does; None if there is no such topic."""
        try:
            return self.topic(topic)
        except GatewayProblem as problem:
            if problem.code != TOPIC_UNKNOWN:
                raise
            return None

    def topics(self, prefix: str = "") -> Iterator[Fields]:
        """Yield every topic whose name begins with `prefix`, by name; fetched in pages."""
        following: str | None = requests.topics_path(prefix)
        while following:
            page = self.topics_page(following, known="")
            assert page is not None, "nothing is known, so there is a page"
            yield from page.topics
            following = page.following

    def topics_page(self, address: str, known: str) -> TopicsPage | None:
        """Return a page of the list of topics; None if its entity tag is still `known`."""
        return self._transport.ask(requests.topics_page(address, known))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its messages; its subscriptions end."""
        self.administration.delete_topic(topic)

    # Messages

    def publish(
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
        """Publish messages in one request, all or none, and exactly once.

        Args:
            topic: the topic to publish to.
            messages: a list of values or of their JSON texts as bytes, or one of them. A value is
                a dict, a list, a dataclass, a Struct of msgspec, a model of pydantic, a text, a
                number, None. A Decimal is a number with all of its digits. A list is several
                messages: one that is a list stands in another.
            producer: name of a numbered producer; `sequence` is the number of this batch, and a
                number that was published before publishes nothing.
            sequence: see `producer`.
            delta: each message is a JSON Merge Patch (RFC 7396) of the record of its key: fields
                that it does not name stay, and None removes a field.
            idempotency_key: names the request for a day, also beyond this process; by default a
                request without a producer gets a random one.
            trouble: called with a sentence when the request is retried.

        Raises:
            ValueError, TypeError: a message that is no JSON; nothing was published.
        """
        # A retry needs a name for the request, or a lost answer would publish it twice.
        if idempotency_key is None and producer is None and self._transport.retry.seconds_max > 0:
            idempotency_key = new_key()
        lines = lines_of(messages)
        post = Post.of(lines, producer=producer, sequence=sequence, idempotency_key=idempotency_key)
        return self._transport.ask(requests.publish(topic, post, delta=delta), trouble)

    def publish_body(
        self, topic: str, body: bytes, producer: str, sequence: int, media_type: str = NDJSON
    ) -> Published:
        """Publish a body under a number, once: NDJSON envelopes, or one message as it is."""
        # Lines may be removals, which need envelopes; a single message is sent as it is.
        post = Post.of([body], producer=producer, sequence=sequence, media_type=media_type)
        publish = requests.publish(topic, post, enveloped=media_type == NDJSON)
        return self._transport.ask(publish)

    def stage(
        self,
        topic: str,
        lines: Iterable[bytes],
        stage: str,
        producer: str | None = None,
        *,
        enveloped: bool = False,
    ) -> int:
        """Store messages at the gateway until a commit names their stage; return their number.

        Args:
            topic: the topic of the commit.
            lines: one JSON text each, without line breaks.
            stage: name of the stage; its previous content is dropped.
            producer: name of the producer, where the pipeline fills the topic.
            enveloped: each line is `{"value": …}`, or `{"key": […], "reason": "deleted"}`, which
                removes the record of that key.
        """
        post = Post.of(lines, producer=producer, stage=stage)
        return self._transport.ask(requests.stage(topic, post, enveloped=enveloped))

    def commit(
        self,
        topic: str,
        producer: str,
        run: int,
        sequence: int,
        stages: Sequence[str],
        *,
        epoch: str | None = None,
    ) -> Published:
        """Publish stages in one step, in the order of `stages`, exactly once.

        Args:
            topic: that they were staged for.
            producer: owner of the `sequence`; one not above its highest publishes nothing.
            run: number of the producer's run; commits of older runs are refused.
            sequence: rises from commit to commit, also over runs.
            stages: the names.
            epoch: refuse (`precondition-failed`) if the topic has begun another one.
        """
        return self._transport.ask(requests.commit(topic, producer, run, sequence, stages, epoch))

    def highest_sequence(self, topic: str, producer: str, run: int) -> int | None:
        """Return the highest number that the producer has published, or None.

        If there is one, commits of runs older than `run` are refused from now on.
        """
        try:  # of a stage that is not there: the gateway looks for a known number first
            return self.commit(topic, producer, run, 0, [f"{producer}.nothing"]).sequence
        except GatewayProblem as problem:
            if problem.code != "precondition-failed":
                raise
            return None

    def publisher(
        self,
        topic: str,
        limits: Limits = LIMITS,
        patience_s: float = DELIVERY_S,
        producer: str | None = None,
    ) -> Publisher:
        """Return a publisher, which collects messages to batches; each counts once.

        Args:
            topic: the topic to publish to.
            limits: the limits of batches, and of what waits.
            patience_s: how long a batch is repeated before the publisher stops.
            producer: a name that no other writer of the topic has. Each message has a `sequence`
                then, and counts once also if a later program publishes it again.
        """

        def send(batch: Batch) -> Published:
            return self._transport.ask(requests.publish(topic, batch.post, caller_retries=True))

        return Publisher(send, Outbox(limits, producer), Retry(patience_s))

    def sow(self, topic: str, **query: str | int | None) -> Iterator[bytes]:
        """Yield the state of the world as JSON texts, one for each record.

        `query` takes what the endpoint takes: filter, order_by, top_n, skip_n, select, format,
        as_of.
        """
        return self._transport.lines(f"{topic_path(topic)}/sow", query)

    def delete_records(
        self, topic: str, *, record_key: RecordKey | None = None, filter: str | None = None
    ) -> int:
        """Delete the record of a key, or all that match a filter; return how many there were.

        Subscribers that asked for removals (option `oof`) get one for each.

        Args:
            topic: a topic with a key.
            record_key: the value of a key's one field, or the tuple of its fields.
            filter: selects records in place of `record_key`; one of them is required.
        """
        return self._transport.ask(requests.delete_records(topic, record_key, filter))

    def messages(
        self,
        topic: str,
        from_: str | None = None,
        limit: int | None = None,
        *,
        last: int | None = None,
    ) -> Iterator[bytes]:
        """Yield envelopes of the journal as JSON texts, oldest first, up to the present.

        Args:
            topic: the topic to read.
            from_: a bookmark, messages after it; a time (ISO 8601, or milliseconds since 1970 as a
                text), messages since then; `epoch` or None for the oldest message kept.
            limit: so many of them at most, up to 100,000; None for all, which are fetched in pages.
            last: the newest messages, so many, up to 100,000; in place of `from_` and `limit`.

        Raises:
            GatewayProblem: `bookmark-expired`, where messages since `from_` were trimmed, also
                between two pages.
        """
        path = f"{topic_path(topic)}/messages"
        query: dict[str, str | int | None] = {"from": from_, "limit": limit, "last": last}
        if limit is not None or last is not None:
            yield from self._transport.lines(path, query)
            return
        page: requests.JournalPage | None = requests.JournalPage(from_)
        while page is not None:
            newest = b""
            for newest in self._transport.lines(path, page.query):
                yield newest
            page = page.following(newest)

    def journal(self, topic: str) -> Journal:
        """Return the ends of a topic's journal."""
        found = self.topic(topic)
        ends = found.get("journal") or {}
        continues = found.get("continues") or {}
        return Journal(found.get("epoch"), ends.get("first"), ends.get("last"), continues)

    def journal_page(self, topic: str, after: str, messages_max: int) -> bytes:
        """Return NDJSON envelopes after the bookmark `after`, at most so many lines."""
        params = {"from": after, "limit": messages_max}
        path = f"{topic_path(topic)}/messages"
        page = requests.Request("GET", path, lambda answer: answer.content, {"params": params})
        return self._transport.ask(page)

    def records(self, topic: str) -> Iterator[bytes]:
        """Yield NDJSON envelopes of a topic's records, in the order of their last change.

        Pieces are whole lines. The answer is on disk before the first piece, so a broken connection
        shows before anything is yielded, and memory stays small.
        """
        with TemporaryFile() as file:
            self._transport.fetch(f"{topic_path(topic)}/sow", {"format": "envelope"}, file)
            file.seek(0)
            while piece := file.read(PIECE_BYTES):
                yield piece + file.readline()  # with the rest of its last line

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
    ) -> Subscription:
        """Subscribe; return an iterator of events that survives lost connections.

        Args:
            topic: the topic to subscribe to, or a pattern such as `px.*`.
            options: the options string, such as `conflation=500ms`.
            filter: only messages that match.
            order_by: order of snapshot rows and windows, such as `/price DESC`.
            command: `sow`, `subscribe`, `delta_subscribe`, `sow_and_subscribe` or
                `sow_and_delta_subscribe`; the gateway's default fits the topic.
            format: `value`, `envelope` or `batch`.
            last_event_id: resume after it.
            for_s: end after so many seconds.
            trouble: called with a sentence when the connection is lost; see Subscription.
        """
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
    ) -> Live:
        """Subscribe; return a dict of the newest values, which follows the topic by itself.

        Args:
            topic: the topic to subscribe to, or a pattern.
            options: the options string, such as `conflation=1s`.
            filter: only records that match.
            order_by: the order of a window and of `in_order`, such as `/price DESC`.
            command: replaces the one that `deltas` gives.
            deltas: send changed fields only; the values here stay whole.
            removals: ask for removals; by default where the topic has keys.
            trouble: called with a sentence when the connection is lost; see Subscription.
        """
        request = LiveRequest(topic, options, filter, order_by, command, deltas, removals)

        def subscribe(params: Mapping[str, str]) -> Subscription:
            polling = Polling(topic, params)
            stream = Stream.of(topic, params, trouble=trouble, polling=polling)
            return self._subscription(topic, params, stream)

        return Live(request, subscribe)

    def open_session(
        self,
        *,
        limits: Fields | None = None,
        conflated: bool = True,
        for_s: float | None = None,
        trouble: Trouble | None = None,
    ) -> Session:
        """Open a session for many subscriptions on one stream.

        Args:
            limits: `messages`, `bytes`, `upper` and `lower` of its queue; the gateway's by default.
            conflated: False turns off the queue policies of its topics.
            for_s: end its events after so many seconds.
            trouble: called with a sentence when the connection is lost; see Subscription.
        """
        opened = self._transport.ask(requests.open_session(limits, conflated))

        def ask(method: str, path: str, document: Fields | None) -> Fields:
            about = requests.about_session(opened["session"], method, path, document)
            return self._transport.ask(about)

        def connect(after: str) -> httpx2.Response:
            path, patience_s = opened["events"], stream.patience_s
            return self._transport.open_stream("GET", path, after, patience_s)

        stream = Stream(is_session=True, trouble=trouble)
        events = Subscription(connect, stream, for_s=for_s)
        return Session(opened["session"], ask, events)

    def explain(self, topic: str, **request: str | None) -> Fields:
        """Return what subscribing would do, without doing it.

        `request` takes what a subscription takes: options, filter, order_by, command.
        """
        return self._transport.ask(requests.explain(topic, **request))

    def _subscription(
        self,
        topic: str,
        params: Mapping[str, str],
        stream: Stream,
        for_s: float | None = None,
    ) -> Subscription:
        def connect(after: str) -> httpx2.Response:
            method, given = stream.opening(params)
            path = f"{topic_path(topic)}/subscribe"
            return self._transport.open_stream(method, path, after, stream.patience_s, **given)

        return Subscription(connect, stream, for_s=for_s, ask=self._transport.ask)
