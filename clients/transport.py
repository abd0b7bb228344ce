"""Requests to one gateway: sent, sent again where that is safe, and their refusals as errors."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, urlsplit

import httpx2

from tidegate.clients import DEFAULT_ADDRESS
from tidegate.clients.answers import Fields, fields_of, problem_of, require_media_type, split_lines
from tidegate.clients.errors import GatewayProblem, GatewayUnreachable
from tidegate.clients.retry import Retry, Trouble
from tidegate.clients.subscription import HELLO_SECONDS_MAX, NO_CONTENT

ANSWER_SECONDS_MAX = 60.0
CONNECT_SECONDS_MAX = 5.0
EVENT_STREAM = "text/event-stream"
JSON = "application/json"
NDJSON = "application/x-ndjson"
NOT_MODIFIED = 304
OUT_FOR_A_WHILE = frozenset({502, 503, 504})
TOO_MANY = 429

Answer = TypeVar("Answer")


class Transport:
    """The connections to one gateway.

    Args:
        base_url: its address.
        answer_seconds_max: how long to wait for an answer, or for its next piece.
        retry: how what is published is sent again.
        every: how every request is sent again, whatever may be over in a moment; None: only what
            is published is, while the gateway is out.

    Raises:
        ValueError: `base_url` is no http address.
    """

    def __init__(
        self, base_url: str, answer_seconds_max: float, retry: Retry, every: Retry | None
    ) -> None:
        self.base_url = _checked_address(base_url)
        self.retry = every or retry
        self._every = every
        limits = httpx2.Timeout(answer_seconds_max, connect=CONNECT_SECONDS_MAX)
        # Loading certificates for nothing costs 20 ms a client, and every task of Spark makes one.
        self._http = httpx2.Client(
            base_url=self.base_url,
            timeout=limits,
            trust_env=False,
            verify=self.base_url.startswith("https:"),
        )
        self._was_reached = False

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def ask(self, method: str, path: str, **given: Any) -> httpx2.Response:
        """The answer, read, if it succeeded."""
        return self._sent_again(lambda: self._asked(method, path, **given))

    def publish(self, method: str, path: str, trouble: Trouble | None, **given: Any) -> Fields:
        """The fields of an answer to what is published once, however often it is sent."""

        def told(error: Exception) -> None:
            if trouble is not None:
                trouble(f"{error}; trying again")

        may_pass = may_be_over_soon if self._every else is_out_for_a_while
        return self.retry.call(
            lambda: fields_of(self._asked(method, path, **given)),
            may_pass,
            told if trouble else None,
        )

    def lines(self, path: str, query: dict[str, str | int | None]) -> Iterator[bytes]:
        """The lines of an answer as they arrive; sent once, what was given is not taken back."""
        params = {name: value for name, value in query.items() if value is not None}
        answer = self._send(self._http.build_request("GET", path, params=params))
        require_media_type(answer, NDJSON, JSON)
        try:
            yield from split_lines(answer.iter_bytes())
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        finally:
            answer.close()

    def fetch(self, path: str, params: dict[str, str], file: BinaryIO) -> None:
        """Have a file hold an answer, and nothing of one that broke off before."""

        def fetched() -> None:
            file.seek(0)
            file.truncate()
            answer = self._send(self._http.build_request("GET", path, params=params))
            require_media_type(answer, NDJSON, JSON)
            try:
                file.writelines(answer.iter_bytes())
            except httpx2.HTTPError as error:
                raise self._unreachable(error) from None
            finally:
                answer.close()

        self._sent_again(fetched)

    def open_stream(self, method: str, path: str, after: str = "", **given: Any) -> httpx2.Response:
        """The open answer of events behind the id `after`."""
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

    def _sent_again(self, ask: Callable[[], Answer]) -> Answer:
        return ask() if self._every is None else self._every.call(ask, may_be_over_soon)

    def _asked(self, method: str, path: str, **given: Any) -> httpx2.Response:
        answer = self._send(self._http.build_request(method, path, **given))
        try:
            answer.read()
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        return answer

    def _send(self, request: httpx2.Request) -> httpx2.Response:
        """The open answer; one that is no success is read, closed and raised."""
        try:
            answer = self._http.send(request, stream=True)
            self._was_reached = True
            if answer.is_success or answer.status_code == NOT_MODIFIED:
                return answer
            answer.read()
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        raise problem_of(answer)

    def _unreachable(self, error: httpx2.HTTPError) -> GatewayUnreachable:
        if not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            self._was_reached = True  # it may have taken the request
        reason = str(error) or type(error).__name__
        failure = GatewayUnreachable(f"Cannot reach the gateway at {self.base_url}: {reason}")
        failure.was_reached = self._was_reached
        return failure


@dataclass(frozen=True, slots=True)
class Post:
    """One request to publish: its body and its header."""

    body: bytes
    headers: Mapping[str, str]

    @classmethod
    def of(
        cls,
        lines: Iterable[bytes],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        idempotency_key: str | None = None,
        stage: str | None = None,
        media_type: str = NDJSON,
    ) -> Post:
        """Of JSON texts without line breaks, or of one message as it is."""
        named = {
            "Tidegate-Producer": producer,
            "Tidegate-Sequence": None if sequence is None else str(sequence),
            "Idempotency-Key": idempotency_key,
            "Tidegate-Stage": stage,
        }
        headers = {name: text for name, text in named.items() if text is not None}
        return cls(b"\n".join(lines), {"Content-Type": media_type, **headers})


def new_key() -> str:
    """A key that no other request has."""
    return secrets.token_urlsafe(16)


def is_out_for_a_while(error: Exception) -> bool:
    """Whether a failure is one of the connection, or of a gateway that is out for a while.

    A gateway that was never reached is not waited for: most likely it is not there at all.
    """
    if isinstance(error, GatewayProblem):
        return error.status in OUT_FOR_A_WHILE
    return isinstance(error, GatewayUnreachable) and error.was_reached


def may_be_over_soon(error: Exception) -> bool:
    """Whether whoever has time for it asks again: no answer, 429, or any 5xx."""
    if isinstance(error, GatewayProblem):
        return error.status == TOO_MANY or error.status >= 500
    return isinstance(error, GatewayUnreachable)


def topic_path(topic: str) -> str:
    """Where a topic stands."""
    return f"/v1/topics/{quote(topic, safe='')}"


def _checked_address(text: str) -> str:
    address = text.rstrip("/")
    try:
        parts = urlsplit(address)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        sound = False
    if not sound or parts.path or parts.query or parts.fragment:
        raise ValueError(f"an address is such as {DEFAULT_ADDRESS}, not {text!r}")
    return address
