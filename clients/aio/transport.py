"""Requests of the asyncio client: sent, and retried where that is safe."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import httpx2

from tidegate.clients.answers import Lines, problem_of, require_media_type
from tidegate.clients.errors import AnswerInvalid, GatewayProblem, GatewayUnreachable
from tidegate.clients.requests import JSON, NDJSON, NO_CONTENT, Request
from tidegate.clients.retry import Attempts, Retry, Trouble, is_temporary, repeated, reporting
from tidegate.clients.token import Token
from tidegate.clients.transport import (
    EVENT_STREAM,
    Addresses,
    Given,
    given_of,
    http_arguments,
    is_fine,
    is_gateway_out,
    stream_arguments,
)

Answer = TypeVar("Answer")


class AsyncTransport:
    """The connections to one gateway; arguments are those of `Transport`.

    The waits of a `Retry` are slept here, so its `pause` is not called.
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
        self._http = httpx2.AsyncClient(**http_arguments(self.addresses, answer_seconds_max, token))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(self, request: Request[Answer], trouble: Trouble | None = None) -> Answer:
        """Return what a request's answer says."""

        async def asked() -> Answer:
            answer = await self._asked(request.method, request.path, **request.given)
            with self.addresses.reading():
                return request.read(answer)

        attempts = self._attempts(request.takes_effect_once, trouble)
        return await (asked() if attempts is None else repeated(asked, attempts))

    async def lines(self, path: str, query: dict[str, str | int | None]) -> AsyncIterator[bytes]:
        """Yield the lines of an answer as they arrive; this request is not retried."""
        answer = await self._send("GET", path, params=given_of(query))
        lines = Lines()
        try:
            require_media_type(answer, NDJSON, JSON)
            async for chunk in answer.aiter_bytes():
                for line in lines.feed(chunk):
                    yield line
            for line in lines.rest():
                yield line
        except httpx2.HTTPError as error:
            raise self.addresses.failure(error) from None
        finally:
            await answer.aclose()

    async def open_stream(
        self, method: str, path: str, after: str, seconds_max: float, **given: Any
    ) -> httpx2.Response:
        """Return the open answer of a stream of events; see `Transport.open_stream`."""
        arguments = stream_arguments(after, seconds_max)
        answer = await self._send(method, path, **arguments, **given)
        # The subscription watches for silence: this limit was for the answer's header.
        answer.request.extensions["timeout"]["read"] = None
        try:
            if answer.status_code != NO_CONTENT:
                with self.addresses.reading():
                    require_media_type(answer, EVENT_STREAM)
        except AnswerInvalid:
            await answer.aclose()  # an unread answer keeps its connection out of the pool
            raise
        return answer

    def _attempts(self, takes_effect_once: bool, trouble: Trouble | None) -> Attempts | None:
        if not takes_effect_once and self._every is None:
            return None
        is_worth_retrying = is_temporary if self._every else is_gateway_out
        return self.retry.attempts(is_worth_retrying, reporting(trouble))

    async def _asked(self, method: str, path: str, **given: Any) -> httpx2.Response:
        answer = await self._send(method, path, **given)
        try:
            await answer.aread()
        except httpx2.HTTPError as error:
            raise self.addresses.failure(error) from None
        return answer

    async def _send(self, method: str, path: str, **given: Any) -> httpx2.Response:
        """Return the open answer; see `Transport`'s."""
        failure: GatewayProblem | GatewayUnreachable
        others = len(self.addresses) - 1
        while True:
            request = self._http.build_request(method, self.addresses.current + path, **given)
            try:
                answer = await self._http.send(request, stream=True)
                if not is_fine(answer):
                    await answer.aread()
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
