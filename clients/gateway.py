"""A gateway's HTTP API as methods: topics, publishing, the state of the world, subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx2

from clients.administration import Administration
from clients.answers import Fields, fields_of, problem_of, require_media_type, split_lines
from clients.errors import AnswerInvalid, GatewayUnreachable
from clients.outage import Trouble
from clients.places import Places
from clients.publishing import NDJSON, PATIENCE_S, Patience, Post, Published, new_key
from clients.session import Session
from clients.subscription import HELLO_SECONDS_MAX, NO_CONTENT, Subscription

DEFAULT_ADDRESS = "http://127.0.0.1:8080"
ANSWER_SECONDS_MAX = 60.0
CONNECT_SECONDS_MAX = 5.0
EVENT_STREAM = "text/event-stream"
JSON = "application/json"
TOPICS_PER_PAGE = 1000


class Gateway:
    """One gateway. Safe to share between threads; close it, or use it as a context manager.

    Every method raises GatewayProblem when the gateway says no and GatewayUnreachable when it
    cannot be reached, AnswerInvalid when what answers is no gateway. Subscriptions come back by
    themselves, and what is published, staged or committed is sent again when the answer was lost or
    the gateway is out for a while, without doubling anything. Other requests are sent once.

    Args:
        base_url: such as `http://127.0.0.1:8080`.
        answer_seconds_max: how long to wait for an answer, or for its next piece.
        patience_s: how long a publish is sent again after it has failed; 0 for not at all.

    Raises:
        ValueError: `base_url` is no http address.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_ADDRESS,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.base_url = _checked_address(base_url)
        limits = httpx2.Timeout(answer_seconds_max, connect=CONNECT_SECONDS_MAX)
        self._http = httpx2.Client(base_url=self.base_url, timeout=limits, trust_env=False)
        self._patience = Patience(patience_s)
        self._was_reached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    @property
    def administration(self) -> Administration:
        """Topics by their entity tags, and everybody's sessions."""
        return Administration(self._ask)

    # Topics

    def put_topic(self, topic: str, definition: Fields) -> bool:
        """Create or replace a topic; true if it is new."""
        answer = self._ask("PUT", _topic_path(topic), json=definition)
        fields_of(answer)
        return answer.status_code == 201

    def topic(self, topic: str) -> Fields:
        """A topic's definition and live figures."""
        return fields_of(self._ask("GET", _topic_path(topic)))

    def topics(self, prefix: str = "") -> Iterator[Fields]:
        """Every topic whose name begins with `prefix`, by name, fetched in pages."""
        params: dict[str, str | int] = {"limit": TOPICS_PER_PAGE}
        if prefix:
            params["prefix"] = prefix
        page = fields_of(self._ask("GET", "/v1/topics", params=params))
        yield from page["topics"]
        while page.get("next"):
            page = fields_of(self._ask("GET", page["next"]))
            yield from page["topics"]

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and what it holds; its subscriptions end."""
        answer = self._ask("DELETE", _topic_path(topic))
        if answer.status_code != NO_CONTENT:
            raise AnswerInvalid(f"{answer.request.url} did not delete as a Tidegate gateway does")

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
        """Publish messages in one request, all or nothing, and once.

        Args:
            topic: to publish to.
            lines: one JSON text each, without line breaks.
            producer: name of a numbered producer, with `sequence` the number of this batch: a
                batch that was sent before is not published again.
            sequence: see `producer`.
            idempotency_key: names the request for a day, over the end of this process too; without
                one and without a producer it gets one of its own.
            trouble: told in a sentence when it has to be sent again.
        """
        if idempotency_key is None and producer is None and self._patience.seconds_max > 0:
            idempotency_key = new_key()
        post = Post.of(lines, producer=producer, sequence=sequence, idempotency_key=idempotency_key)
        return Published.of(self._post(topic, post, trouble))

    def stage(
        self, topic: str, lines: Iterable[bytes], stage: str, producer: str | None = None
    ) -> int:
        """Keep messages aside until a commit names their stage; returns how many.

        Args:
            topic: to publish to in the end.
            lines: one JSON text each, without line breaks.
            stage: name of the stage; what it held is forgotten.
            producer: who stages, where a topic is filled by the pipeline.
        """
        post = Post.of(lines, producer=producer, stage=stage)
        return int(self._post(topic, post, None)["messages"])

    def commit(
        self, topic: str, producer: str, run: int, sequence: int, stages: Sequence[str]
    ) -> Published:
        """Publish stages in one step, in the order of their names, and once.

        Args:
            topic: that they were staged for.
            producer: whose `sequence` it is; one not above its highest publishes nothing.
            run: which life of the producer; the commits of older ones are refused.
            sequence: rises from commit to commit, also over runs.
            stages: the names.
        """
        document = {"producer": producer, "run": run, "sequence": sequence, "stages": list(stages)}
        path = f"{_topic_path(topic)}/commits"
        return Published.of(self._ask_again("POST", path, None, json=document))

    def sow(self, topic: str, **query: str | int | None) -> Iterator[bytes]:
        """The state of the world as JSON texts, one a record.

        `query` takes what the endpoint takes: filter, order_by, top_n, skip_n, select, format,
        as_of.
        """
        return self._lines(f"{_topic_path(topic)}/sow", query)

    def messages(
        self, topic: str, from_: str = "epoch", limit: int | None = None
    ) -> Iterator[bytes]:
        """Envelopes of the journal as JSON texts: what follows the bookmark `from_`."""
        return self._lines(f"{_topic_path(topic)}/messages", {"from": from_, "limit": limit})

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
        """Subscribe; the answer is an iterator of events that survives lost connections.

        Args:
            topic: to subscribe to, or a pattern of topics such as `px.*`.
            options: the options string, such as `conflation=500ms`.
            filter_text: which messages.
            order_by: order of snapshot rows and windows, such as `/price DESC`.
            command: `sow`, `subscribe`, `delta_subscribe`, `sow_and_subscribe` or
                `sow_and_delta_subscribe`; the gateway's default fits the topic.
            format_name: `value`, `envelope` or `batch`.
            last_event_id: resume after it.
            seconds_max: end after so long.
            trouble: told in a sentence when the connection is lost; see Subscription.
        """
        query = {
            "options": options or None,
            "filter": filter_text,
            "order_by": order_by,
            "command": command,
            "format": format_name,
        }
        params = {name: text for name, text in query.items() if text is not None}

        path = f"{_topic_path(topic)}/subscribe"
        places = Places() if "*" in topic or ">" in topic else None

        def connect(after: str) -> httpx2.Response:
            if after or places is None or not places.text or command == "sow":
                return self._open_stream("GET", path, after, params=params)
            return self._open_stream("POST", path, json={**params, "bookmarks": places.text})

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
            conflated: whether its topics' queue policies hold for it.
            seconds_max: its events end after so long.
            trouble: told in a sentence when the connection is lost; see Subscription.
        """
        body: Fields = {"conflated": conflated}
        if limits is not None:
            body["limits"] = limits
        opened = fields_of(self._ask("POST", "/v1/sessions", json=body))
        address = f"/v1/sessions/{opened['session']}"

        def ask(method: str, path: str, document: Fields | None) -> Fields:
            given = {} if document is None else {"json": document}
            answer = self._ask(method, address + path, **given)
            return {} if answer.status_code == NO_CONTENT else fields_of(answer)

        events = Subscription(
            lambda after: self._open_stream("GET", opened["events"], after),
            seconds_max=seconds_max,
            trouble=trouble,
        )
        return Session(opened["session"], ask, events)

    def explain(self, topic: str, **wish: str | None) -> Fields:
        """What subscribing would do, without doing it.

        `wish` takes what a subscription takes: options, filter, order_by, command.
        """
        texts = {name: text for name, text in wish.items() if text is not None}
        return fields_of(self._ask("POST", "/v1/explain", json={"topic": topic, **texts}))

    # Requests

    def _ask(self, method: str, path: str, **given: Any) -> httpx2.Response:
        answer = self._send(self._http.build_request(method, path, **given))
        try:
            answer.read()
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        return answer

    def _post(self, topic: str, post: Post, trouble: Trouble | None) -> Fields:
        path = f"{_topic_path(topic)}/messages"
        return self._ask_again("POST", path, trouble, content=post.body, headers=post.headers)

    def _ask_again(self, method: str, path: str, trouble: Trouble | None, **given: Any) -> Fields:
        """The fields of an answer to what may be sent again."""
        return self._patience.until_answered(
            lambda: fields_of(self._ask(method, path, **given)), lambda: self._was_reached, trouble
        )

    def _lines(self, path: str, query: dict[str, str | int | None]) -> Iterator[bytes]:
        params = {name: value for name, value in query.items() if value is not None}
        answer = self._send(self._http.build_request("GET", path, params=params))
        require_media_type(answer, NDJSON, JSON)
        try:
            yield from split_lines(answer.iter_bytes())
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        finally:
            answer.close()

    def _open_stream(
        self, method: str, path: str, after: str = "", **given: Any
    ) -> httpx2.Response:
        headers = {"Accept": EVENT_STREAM, "Accept-Encoding": "identity"}
        if after:
            headers["Last-Event-ID"] = after
        limits = httpx2.Timeout(HELLO_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
        request = self._http.build_request(method, path, headers=headers, timeout=limits, **given)
        answer = self._send(request)
        # The limit was for the answer's header. How long a stream may be silent is known from its
        # first event only, and watched by the subscription.
        request.extensions["timeout"]["read"] = None
        if answer.status_code != NO_CONTENT:
            require_media_type(answer, EVENT_STREAM)
        return answer

    def _send(self, request: httpx2.Request) -> httpx2.Response:
        """The open answer; one that is no success is read, closed and raised."""
        try:
            answer = self._http.send(request, stream=True)
            self._was_reached = True
            if answer.is_success:
                return answer
            answer.read()
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        raise problem_of(answer)

    def _unreachable(self, error: httpx2.HTTPError) -> GatewayUnreachable:
        if not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            self._was_reached = True  # it may have taken the request
        reason = str(error) or type(error).__name__
        return GatewayUnreachable(f"Cannot reach a gateway at {self.base_url}: {reason}")


def _topic_path(topic: str) -> str:
    return f"/v1/topics/{quote(topic, safe='')}"


def _checked_address(text: str) -> str:
    address = text.rstrip("/")
    parts = urlsplit(address)
    try:
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        sound = False
    if not sound or parts.path or parts.query or parts.fragment:
        raise ValueError(f"an address is such as {DEFAULT_ADDRESS}, not {text!r}")
    return address
