"""Requests to one gateway: sent, retried where that is safe, and refusals raised as errors."""

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
from tidegate.clients.token import Token

ANSWER_SECONDS_MAX = 60.0  # a commit of a million messages takes a while
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
        retry: the retries of a publish while the gateway is out.
        every: the retries of every request after any temporary failure; None: only a publish is
            retried.
        token: of the client.

    Raises:
        ValueError: `base_url` is not an http address.
    """

    def __init__(
        self,
        base_url: str,
        answer_seconds_max: float,
        retry: Retry,
        every: Retry | None,
        token: Token,
    ) -> None:
        self.base_url = _checked_address(base_url)
        self.retry = every or retry
        self._every = every
        limits = httpx2.Timeout(answer_seconds_max, connect=CONNECT_SECONDS_MAX)
        # Loading certificates for nothing costs 20 ms a client, and every task of Spark makes one.
        self._http = httpx2.Client(
            base_url=self.base_url,
            timeout=limits,
            auth=token,
            trust_env=False,
            verify=self.base_url.startswith("https:"),
        )
        self._was_reached = False

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, method: str, path: str, **given: Any) -> httpx2.Response:
        """Return a successful answer, read to its end."""
        return self._sent_again(lambda: self._asked(method, path, **given))

    def publish(self, method: str, path: str, trouble: Trouble | None, **given: Any) -> Fields:
        """Return the fields of the answer to a publish, which takes effect once."""

        def report(error: Exception) -> None:
            if trouble is not None:
                trouble(f"{error}; trying again")

        is_worth_retrying = is_temporary if self._every else is_gateway_out
        return self.retry.call(
            lambda: fields_of(self._asked(method, path, **given)),
            is_worth_retrying,
            report if trouble else None,
        )

    def lines(self, path: str, query: dict[str, str | int | None]) -> Iterator[bytes]:
        """Yield the lines of an answer as they arrive; this request is not retried."""
        params = {name: value for name, value in query.items() if value is not None}
        answer = self._send(self._http.build_request("GET", path, params=params))
        require_media_type(answer, NDJSON, JSON)
        # A retry would yield again what was yielded already.
        try:
            yield from split_lines(answer.iter_bytes())
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        finally:
            answer.close()

    def fetch(self, path: str, params: dict[str, str], file: BinaryIO) -> None:
        """Write an answer to a file; a retry overwrites what a broken one left."""

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
        """Return the open answer of a stream of events after the id `after`."""
        headers = {"Accept": EVENT_STREAM, "Accept-Encoding": "identity"}
        if after:
            headers["Last-Event-ID"] = after
        limits = httpx2.Timeout(HELLO_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
        request = self._http.build_request(method, path, headers=headers, timeout=limits, **given)
        answer = self._send(request)
        # This limit was for the answer's header. The first event brings the one for silence; the
        # subscription watches it.
        request.extensions["timeout"]["read"] = None
        if answer.status_code != NO_CONTENT:
            require_media_type(answer, EVENT_STREAM)
        return answer

    def _sent_again(self, ask: Callable[[], Answer]) -> Answer:
        return ask() if self._every is None else self._every.call(ask, is_temporary)

    def _asked(self, method: str, path: str, **given: Any) -> httpx2.Response:
        answer = self._send(self._http.build_request(method, path, **given))
        try:
            answer.read()
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        return answer

    def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Return the open answer; read, close and raise one that is no success."""
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
            self._was_reached = True  # the gateway may have received the request
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
        """Build a request of JSON texts without line breaks, or of one message as it is."""
        named = {
            "Tidegate-Producer": producer,
            "Tidegate-Sequence": None if sequence is None else str(sequence),
            "Idempotency-Key": idempotency_key,
            "Tidegate-Stage": stage,
        }
        headers = {name: text for name, text in named.items() if text is not None}
        return cls(b"\n".join(lines), {"Content-Type": media_type, **headers})


def new_key() -> str:
    """Return a random key."""
    return secrets.token_urlsafe(16)


def is_gateway_out(error: Exception) -> bool:
    """Return True for a lost connection, or a gateway that is out for a while.

    A gateway that never answered is not waited for: most likely its address is wrong.
    """
    if isinstance(error, GatewayProblem):
        return error.status in OUT_FOR_A_WHILE
    return isinstance(error, GatewayUnreachable) and error.was_reached


def is_temporary(error: Exception) -> bool:
    """Return True if a repeated request may succeed: no answer, 429, or any 5xx."""
    if isinstance(error, GatewayProblem):
        return error.status == TOO_MANY or error.status >= 500
    return isinstance(error, GatewayUnreachable)


def topic_path(topic: str) -> str:
    """Return the path of a topic."""
    return f"/v1/topics/{quote(topic, safe='')}"


def _checked_address(text: str) -> str:
    address = text.rstrip("/")
    try:
        parts = urlsplit(address)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, an open bracket
        sound = False
    if not sound or parts.path or parts.query or parts.fragment:
        raise ValueError(f"expected an address such as {DEFAULT_ADDRESS}, not {text!r}")
    return address
