"""Requests to one gateway: sent, retried where that is safe, and refusals raised as errors."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

import httpx2

from tidegate.clients import DEFAULT_ADDRESS
from tidegate.clients.answers import (
    PROBLEM,
    Lines,
    media_type_of,
    problem_of,
    require_media_type,
    shown_address,
)
from tidegate.clients.errors import (
    AnswerInvalid,
    CertificateUnusable,
    GatewayProblem,
    GatewayUnreachable,
)
from tidegate.clients.requests import JSON, NDJSON, NO_CONTENT, NOT_MODIFIED, Request
from tidegate.clients.retry import Retry, Trouble, is_temporary, reporting
from tidegate.clients.token import Token

ANSWER_SECONDS_MAX = 60.0  # a commit of a million messages takes a while
CONNECT_SECONDS_MAX = 5.0
EVENT_STREAM = "text/event-stream"
SAFE = "GET"  # changes nothing, so it can be sent twice
OUT = 503  # the bus is out, or the gateway is shutting down
OUT_FOR_A_WHILE = frozenset({502, OUT, 504})
CERTIFICATE_VARIABLE = "TIDEGATE_CLIENT_CERT"

Answer = TypeVar("Answer")
Given = str | Sequence[str]
"""One address, or those of several gateways that share a bus."""


class Addresses:
    """The addresses of gateways that share a bus, of which one is used at a time.

    Args:
        given: such as `http://127.0.0.1:8080`.

    Raises:
        ValueError: one is no http address, or there is none.
    """

    def __init__(self, given: Given) -> None:
        texts = [given] if isinstance(given, str) else list(given)
        if not texts:
            raise ValueError("expected at least one address")
        self._all = [_checked_address(text) for text in texts]
        self._at = 0
        self._was_reached = False

    def __len__(self) -> int:
        return len(self._all)

    @property
    def current(self) -> str:
        """The address in use, without a trailing slash."""
        return self._all[self._at]

    @property
    def are_secure(self) -> bool:
        """True if one of them needs certificates."""
        return any(address.startswith("https:") for address in self._all)

    def answered(self, answer: httpx2.Response) -> bool:
        """Record an answer; use the next address if the gateway is out or a proxy has answered.

        Returns True if this request may go to the next address at once.
        """
        self._was_reached = True
        is_foreign = not is_fine(answer) and media_type_of(answer) != PROBLEM
        if answer.status_code != OUT and not is_foreign:
            return False
        self._use_next()
        return answer.request.method == SAFE

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Use the next address if a success turns out to be no answer of a gateway."""
        try:
            yield
        except AnswerInvalid:
            self._use_next()
            raise

    def failure(self, error: httpx2.HTTPError) -> GatewayUnreachable:
        """Return the error of a request without an answer, and use the next address from now on."""
        is_unconnected = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        # In the other cases the gateway may have received the request.
        self._was_reached = self._was_reached or not is_unconnected
        reason = str(error) or type(error).__name__
        shown = shown_address(self.current)
        failure = GatewayUnreachable(f"Cannot reach the gateway at {shown}: {reason}")
        failure.was_reached = self._was_reached
        failure.timed_out = isinstance(error, httpx2.ReadTimeout)
        is_cut = error.request.method == SAFE and not failure.timed_out
        failure.tries_next_address = is_unconnected or is_cut
        self._use_next()
        return failure

    def _use_next(self) -> None:
        self._at = (self._at + 1) % len(self._all)


class Transport:
    """The connections to one gateway.

    Args:
        base_url: its address, or several.
        answer_seconds_max: how long to wait for an answer, or for its next piece.
        retry: the retries of a publish while the gateway is out.
        every: the retries of every request after any temporary failure; None: only a publish is
            retried.
        token: the client's token.

    Raises:
        ValueError: `base_url` is not an http address.
        CertificateUnusable: authorities or certificate cannot be read.
    """

    def __init__(
        self,
        base_url: Given,
        answer_seconds_max: float,
        retry: Retry,
        every: Retry | None,
        token: Token,
    ) -> None:
        self.addresses = Addresses(base_url)
        self.retry = every or retry
        self._every = every
        given = http_arguments(self.addresses, answer_seconds_max, token)
        self._new = partial(httpx2.Client, **given)
        self._clients = {os.getpid(): self._new()}

    @property
    def _http(self) -> httpx2.Client:
        """The connections of this process: a fork must not read answers to its parent."""
        process = os.getpid()
        # The parent's are kept: closing them here could end its TLS connections.
        if process not in self._clients:
            self._clients[process] = self._new()
        return self._clients[process]

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, request: Request[Answer], trouble: Trouble | None = None) -> Answer:
        """Return what a request's answer says."""

        def asked() -> Answer:
            answer = self._asked(request.method, request.path, **request.given)
            with self.addresses.reading():
                return request.read(answer)

        if not request.takes_effect_once:
            return self._sent_again(asked)
        is_worth_retrying = is_temporary if self._every else is_gateway_out
        return self.retry.call(asked, is_worth_retrying, reporting(trouble))

    def lines(self, path: str, query: dict[str, str | int | None]) -> Iterator[bytes]:
        """Yield the lines of an answer as they arrive; this request is not retried."""
        answer = self._send("GET", path, params=given_of(query))
        lines = Lines()
        # A retry would yield again what was yielded already.
        try:
            require_media_type(answer, NDJSON, JSON)
            for chunk in answer.iter_bytes():
                yield from lines.feed(chunk)
            yield from lines.rest()
        except httpx2.HTTPError as error:
            raise self.addresses.failure(error) from None
        finally:
            answer.close()

    def fetch(self, path: str, params: dict[str, str], file: BinaryIO) -> None:
        """Write an answer to a file; a retry overwrites what a broken one left."""

        def fetched() -> None:
            file.seek(0)
            file.truncate()
            answer = self._send("GET", path, params=params)
            try:
                require_media_type(answer, NDJSON, JSON)
                file.writelines(answer.iter_bytes())
            except httpx2.HTTPError as error:
                raise self.addresses.failure(error) from None
            finally:
                answer.close()

        self._sent_again(fetched)

    def open_stream(
        self, method: str, path: str, after: str, seconds_max: float, **given: Any
    ) -> httpx2.Response:
        """Return the open answer of a stream of events after the id `after`.

        A healthy gateway sends the header at once; without it the request fails after
        `seconds_max`.
        """
        answer = self._send(method, path, **stream_arguments(after, seconds_max), **given)
        # The subscription watches for silence: this limit was for the answer's header.
        answer.request.extensions["timeout"]["read"] = None
        try:
            if answer.status_code != NO_CONTENT:
                with self.addresses.reading():
                    require_media_type(answer, EVENT_STREAM)
        except AnswerInvalid:
            answer.close()  # an unread answer keeps its connection out of the pool
            raise
        return answer

    def _sent_again(self, ask: Callable[[], Answer]) -> Answer:
        return ask() if self._every is None else self._every.call(ask, is_temporary)

    def _asked(self, method: str, path: str, **given: Any) -> httpx2.Response:
        answer = self._send(method, path, **given)
        try:
            answer.read()
        except httpx2.HTTPError as error:
            raise self.addresses.failure(error) from None
        return answer

    def _send(self, method: str, path: str, **given: Any) -> httpx2.Response:
        """Return the open answer; read, close and raise one that is no success.

        Where another address may answer better, each is asked once.
        """
        failure: GatewayProblem | GatewayUnreachable
        others = len(self.addresses) - 1
        while True:
            request = self._http.build_request(method, self.addresses.current + path, **given)
            try:
                answer = self._http.send(request, stream=True)
                if not is_fine(answer):
                    answer.read()
                tries_next = self.addresses.answered(answer)
                if is_fine(answer):
                    return answer
                failure = problem_of(answer)
            except httpx2.HTTPError as error:
                failure = self.addresses.failure(error)
                tries_next = failure.tries_next_address
            if not tries_next or not others:
                raise failure
            others -= 1


def http_arguments(addresses: Addresses, answer_seconds_max: float, token: Token) -> dict[str, Any]:
    """Return the arguments of httpx2's client, of either kind."""
    return {
        "timeout": httpx2.Timeout(answer_seconds_max, connect=CONNECT_SECONDS_MAX),
        # The default is 100: as many open streams would leave no connection for a request.
        "limits": httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        "auth": token,
        "trust_env": False,
        # Without need, loading certificates takes 20 ms, and every task of Spark creates a client.
        "verify": addresses.are_secure and _trusting(),
    }


def stream_arguments(after: str, seconds_max: float) -> dict[str, Any]:
    """Return the header and the time limits of the request for a stream."""
    headers = {"Accept": EVENT_STREAM, "Accept-Encoding": "identity"}
    if after:
        headers["Last-Event-ID"] = after
    return {
        "headers": headers,
        "timeout": httpx2.Timeout(seconds_max, connect=CONNECT_SECONDS_MAX),
    }


def given_of(query: dict[str, str | int | None]) -> dict[str, str | int]:
    """Return the members of a query that are given."""
    return {name: value for name, value in query.items() if value is not None}


def is_fine(answer: httpx2.Response) -> bool:
    """Return True for a success, and for a 304: the caller has the answer already."""
    return answer.is_success or answer.status_code == NOT_MODIFIED


def is_gateway_out(error: Exception) -> bool:
    """Return True for a lost connection, or a gateway that is out for a while.

    A gateway that never answered is not waited for: most likely its address is wrong.
    """
    if isinstance(error, GatewayProblem):
        return error.status in OUT_FOR_A_WHILE
    return isinstance(error, GatewayUnreachable) and error.was_reached


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


def _trusting() -> ssl.SSLContext:
    """Return the TLS context: the trusted authorities, and the client's own certificate.

    The authorities are those of SSL_CERT_FILE or SSL_CERT_DIR, else the system's. The certificate
    is that of TIDEGATE_CLIENT_CERT: one file in PEM, with its chain and its key.

    Raises:
        CertificateUnusable: a file cannot be used.
    """
    try:
        context = httpx2.create_ssl_context()
    except OSError as error:
        raise CertificateUnusable(f"SSL_CERT_FILE: {_reason(error)}") from None
    certificate = os.environ.get(CERTIFICATE_VARIABLE)
    if certificate:
        try:
            # An empty passphrase: without one OpenSSL would ask at the terminal.
            context.load_cert_chain(certificate, password="")
        except OSError as error:
            text = f"{CERTIFICATE_VARIABLE}: {certificate}: {_reason(error)}"
            raise CertificateUnusable(text) from None
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "no certificate with its key in PEM, or its key is encrypted"
    return f"cannot be read: {(error.strerror or str(error)).lower()}"
