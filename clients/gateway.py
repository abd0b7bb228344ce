"""The HTTP API of a gateway as methods: topics, publishing, state of the world, subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from tempfile import TemporaryFile
from typing import Self
from urllib.parse import quote

import httpx2

from tidegate.clients import DEFAULT_ADDRESS
from tidegate.clients.administration import Administration
from tidegate.clients.answers import Fields, Journal, Published, TopicsPage, fields_of
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.retry import PATIENCE_S, TOPIC_UNKNOWN, Retry, Trouble
from tidegate.clients.session import Session
from tidegate.clients.subscription import NO_CONTENT, Places, Subscription, request_of
from tidegate.clients.token import Token
from tidegate.clients.transport import (
    ANSWER_SECONDS_MAX,
    NDJSON,
    NOT_MODIFIED,
    Post,
    Transport,
    new_key,
    topic_path,
)

PIECE_BYTES = 4 * 1024 * 1024  # read at once from a file that may be larger than memory
TOPICS_PER_PAGE = 1000  # the gateway's most


class Gateway:
    """One gateway. Safe to share between threads; close it, or use it as a context manager.

    Every method raises GatewayProblem when the gateway refuses, GatewayUnreachable when it cannot
    be reached, and AnswerInvalid when the answer is not one of a gateway. Subscriptions reconnect
    by themselves. A publish, a stage or a commit is retried when the answer was lost or the gateway
    is out for a while, and takes effect once. Other requests are sent once, unless `every` is set.

    Args:
        base_url: such as `http://127.0.0.1:8080`.
        answer_seconds_max: how long to wait for an answer, or for its next piece.
        patience_s: how long a failed publish is retried; 0 for no retry.
        every: the retries of every request after any temporary failure (429, 5xx, no answer);
            replaces `patience_s`.
        token: sent with every request; by default that of the environment.

    Raises:
        ValueError: `base_url` is not an http address.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_ADDRESS,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
        patience_s: float = PATIENCE_S,
        every: Retry | None = None,
        token: Token | None = None,
    ) -> None:
        token = token or Token.of_environment()
        self._transport = Transport(base_url, answer_seconds_max, Retry(patience_s), every, token)

    @property
    def base_url(self) -> str:
        """The address, without a trailing slash."""
        return self._transport.base_url

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
        return Administration(self._transport.ask)

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
        first = f"/v1/topics?limit={TOPICS_PER_PAGE}"
        if prefix:
            first += f"&prefix={quote(prefix, safe='')}"
        following: str | None = first
        while following:
            page = fields_of(self._transport.ask("GET", following))
            yield from page["topics"]
            following = page.get("next")

    def topics_page(self, address: str, known: str) -> TopicsPage | None:
        """Return a page of the list of topics; None if its entity tag is still `known`."""
        headers = {"If-None-Match": known} if known else {}
        answer = self._transport.ask("GET", address, headers=headers)
        if answer.status_code == NOT_MODIFIED:
            return None
        page = fields_of(answer)
        return TopicsPage(page["topics"], page["next"], answer.headers.get("ETag", ""))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its messages; its subscriptions end."""
        self.administration.delete_topic(topic)

    # Messages

    def publish(
        self,
        topic: str,
        lines: Iterable[bytes],
        producer: str | None = None,
        sequence: int | None = None,
        *,
        idempotency_key: str | None = None,
        trouble: Trouble | None = None,
    ) -> Published:
        """Publish messages in one request, all or none, and exactly once.

        Args:
            topic: to publish to.
            lines: one JSON text each, without line breaks.
            producer: name of a numbered producer; `sequence` is the number of this batch, and a
                number that was published before publishes nothing.
            sequence: see `producer`.
            idempotency_key: names the request for a day, also beyond this process; by default a
                request without a producer gets a random one.
            trouble: called with a sentence when the request is retried.
        """
        # A retry needs a name for the request, or a lost answer would publish it twice.
        if idempotency_key is None and producer is None and self._transport.retry.seconds_max > 0:
            idempotency_key = new_key()
        post = Post.of(lines, producer=producer, sequence=sequence, idempotency_key=idempotency_key)
        return Published.of(self._post(topic, post, trouble))

    def publish_body(
        self, topic: str, body: bytes, producer: str, sequence: int, media_type: str = NDJSON
    ) -> Published:
        """Publish a body under a number, once: NDJSON envelopes, or one message as it is."""
        # Lines may be removals, which only an envelope can say; a single message goes as it is.
        post = Post.of([body], producer=producer, sequence=sequence, media_type=media_type)
        return Published.of(self._post(topic, post, None, enveloped=media_type == NDJSON))

    def stage(
        self,
        topic: str,
        lines: Iterable[bytes],
        stage: str,
        producer: str | None = None,
        *,
        enveloped: bool = False,
    ) -> int:
        """Keep messages aside until a commit names their stage; return their number.

        Args:
            topic: to publish to in the end.
            lines: one JSON text each, without line breaks.
            stage: name of the stage; its previous content is dropped.
            producer: name of the producer, where the pipeline fills the topic.
            enveloped: each line is `{"value": …}`, or `{"key": […], "reason": "deleted"}`, which
                removes the record of that key.
        """
        post = Post.of(lines, producer=producer, stage=stage)
        return int(self._post(topic, post, None, enveloped=enveloped)["messages"])

    def commit(
        self, topic: str, producer: str, run: int, sequence: int, stages: Sequence[str]
    ) -> Published:
        """Publish stages in one step, in the order of their names, exactly once.

        Args:
            topic: that they were staged for.
            producer: owner of the `sequence`; one not above its highest publishes nothing.
            run: number of the producer's run; commits of older runs are refused.
            sequence: rises from commit to commit, also over runs.
            stages: the names.
        """
        document = {"producer": producer, "run": run, "sequence": sequence, "stages": list(stages)}
        path = f"{topic_path(topic)}/commits"
        return Published.of(self._transport.publish("POST", path, None, json=document))

    def knows(self, topic: str, producer: str, run: int, sequence: int) -> bool:
        """Return True if that number of the producer, or a higher one, was published."""
        try:  # of a stage that is not there: the gateway looks for a known number first
            return self.commit(topic, producer, run, sequence, [f"{producer}.nothing"]).duplicate
        except GatewayProblem as problem:
            if problem.code != "precondition-failed":
                raise
            return False

    def sow(self, topic: str, **query: str | int | None) -> Iterator[bytes]:
        """Yield the state of the world as JSON texts, one for each record.

        `query` takes what the endpoint takes: filter, order_by, top_n, skip_n, select, format,
        as_of.
        """
        return self._transport.lines(f"{topic_path(topic)}/sow", query)

    def messages(
        self, topic: str, from_: str = "epoch", limit: int | None = None
    ) -> Iterator[bytes]:
        """Yield envelopes of the journal as JSON texts, after the bookmark `from_`."""
        return self._transport.lines(
            f"{topic_path(topic)}/messages", {"from": from_, "limit": limit}
        )

    def journal(self, topic: str) -> Journal:
        """Return the ends of a topic's journal."""
        found = self.topic(topic)
        ends = found.get("journal") or {}
        return Journal(found.get("epoch"), ends.get("first"), ends.get("last"))

    def journal_page(self, topic: str, after: str, messages_max: int) -> bytes:
        """Return NDJSON envelopes after the bookmark `after`, at most so many lines."""
        params = {"from": after, "limit": messages_max}
        return self._transport.ask("GET", f"{topic_path(topic)}/messages", params=params).content

    def records(self, topic: str) -> Iterator[bytes]:
        """Yield NDJSON envelopes of a topic's records, in the order of their last change.

        Pieces are whole lines. The answer is on disk before the first piece, so a broken connection
        shows before anything is yielded, and memory stays small.
        """
        with TemporaryFile() as file:
            self._transport.fetch(f"{topic_path(topic)}/sow", {"format": "envelope"}, file)
            file.seek(0)
            while piece := file.read(PIECE_BYTES):
                yield piece + file.readline()  # up to the end of the line that it has cut

    # Subscriptions

    def subscribe(
        self,
        topic: str,
        *,
        options: str = "",
        filter_text: str | None = None,
        order_by: str | None = None,
        command: str | None = None,
        format_name: str | None = None,
        last_event_id: str = "",
        seconds_max: float | None = None,
        trouble: Trouble | None = None,
    ) -> Subscription:
        """Subscribe; return an iterator of events that survives lost connections.

        Args:
            topic: to subscribe to, or a pattern of topics such as `px.*`.
            options: the options string, such as `conflation=500ms`.
            filter_text: only messages that match.
            order_by: order of snapshot rows and windows, such as `/price DESC`.
            command: `sow`, `subscribe`, `delta_subscribe`, `sow_and_subscribe` or
                `sow_and_delta_subscribe`; the gateway's default fits the topic.
            format_name: `value`, `envelope` or `batch`.
            last_event_id: resume after it.
            seconds_max: end after this time.
            trouble: called with a sentence when the connection is lost; see Subscription.
        """
        params = request_of(
            options=options or None,
            filter=filter_text,
            order_by=order_by,
            command=command,
            format=format_name,
        )
        path = f"{topic_path(topic)}/subscribe"
        # Ids of a pattern's stream end with its session; the places in each topic outlive it.
        places = Places() if "*" in topic or ">" in topic else None

        def connect(after: str) -> httpx2.Response:
            if after or places is None or not places.text or command == "sow":
                return self._transport.open_stream("GET", path, after, params=params)
            # The body takes as many places as a pattern has topics; a query has 8 KiB.
            return self._transport.open_stream(
                "POST", path, json={**params, "bookmarks": places.text}
            )

        return Subscription(
            connect,
            seconds_max=seconds_max,
            last_event_id=last_event_id,
            once=command == "sow",
            trouble=trouble,
            places=places,
        )

    def open_session(
        self,
        *,
        limits: Fields | None = None,
        conflated: bool = True,
        seconds_max: float | None = None,
        trouble: Trouble | None = None,
    ) -> Session:
        """Open a session for many subscriptions on one stream.

        Args:
            limits: of its queue: `messages`, `bytes`, `upper`, `lower`; the gateway's by default.
            conflated: False turns off the queue policies of its topics.
            seconds_max: end its events after this time.
            trouble: called with a sentence when the connection is lost; see Subscription.
        """
        body: Fields = {"conflated": conflated}
        if limits is not None:
            body["limits"] = limits
        opened = fields_of(self._transport.ask("POST", "/v1/sessions", json=body))
        address = f"/v1/sessions/{opened['session']}"

        def ask(method: str, path: str, document: Fields | None) -> Fields:
            given = {} if document is None else {"json": document}
            answer = self._transport.ask(method, address + path, **given)
            return {} if answer.status_code == NO_CONTENT else fields_of(answer)

        events = Subscription(
            lambda after: self._transport.open_stream("GET", opened["events"], after),
            seconds_max=seconds_max,
            trouble=trouble,
        )
        return Session(opened["session"], ask, events)

    def explain(self, topic: str, **request: str | None) -> Fields:
        """Return what subscribing would do, without doing it.

        `request` takes what a subscription takes: options, filter, order_by, command.
        """
        body = {"topic": topic, **request_of(**request)}
        return fields_of(self._transport.ask("POST", "/v1/explain", json=body))

    def _post(
        self, topic: str, post: Post, trouble: Trouble | None, *, enveloped: bool = False
    ) -> Fields:
        path = f"{topic_path(topic)}/messages"
        params = {"format": "envelope"} if enveloped else None
        return self._transport.publish(
            "POST", path, trouble, content=post.body, headers=post.headers, params=params
        )
