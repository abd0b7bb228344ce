"""The token of a client: sent with every request, and shown nowhere."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator
from pathlib import Path

import httpx2

from tidegate.clients.errors import TokenUnusable

TOKEN_VARIABLE = "TIDEGATE_TOKEN"
TOKEN_FILE_VARIABLE = "TIDEGATE_TOKEN_FILE"
TOKEN_BYTES_MAX = 16 << 10
UNAUTHENTICATED = 401

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+", re.ASCII)


class Token(httpx2.Auth):
    """A bearer token, from a text, a function or a file; without any, requests carry none.

    A function is called, and a file is read, at each request, so that a renewed token is used at
    once; after a refusal it is read once more. Processes of Spark find the token in their own
    environment, never in a plan.

    Args:
        source: text of the token, or a function that returns it; it must not wait.
        file: a file with the token; used if there is no source.

    Raises:
        ValueError: the text is no token.
    """

    def __init__(
        self, source: str | Callable[[], str] | None = None, file: str | Path | None = None
    ) -> None:
        self._text = _checked(source) if isinstance(source, str) else None
        self._call = source if callable(source) else None
        self._file = None if file is None else Path(file)

    @classmethod
    def of(cls, given: TokenSource) -> Token:
        """Return the token that a client was given; without one, that of the environment."""
        if given is None:
            return cls.of_environment()
        return given if isinstance(given, Token) else cls(given)

    @classmethod
    def of_environment(cls) -> Token:
        """Return the token of TIDEGATE_TOKEN, else of the file that TIDEGATE_TOKEN_FILE names."""
        text = os.environ.get(TOKEN_VARIABLE) or None
        return cls(text, os.environ.get(TOKEN_FILE_VARIABLE) or None)

    def __repr__(self) -> str:
        """Say where the token comes from, never what it is."""
        source = "a text" if self._text is not None else self._call or self._file or "nowhere"
        return f"Token(from {source})"

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Add the token to a request; send it once more with another one if it is refused.

        Raises:
            TokenUnusable: the file cannot be read, or the file or function gives no token.
        """
        text = self._read()
        if text is not None:
            request.headers["Authorization"] = f"Bearer {text}"
        answer = yield request
        # It may have expired a moment ago, and have been renewed meanwhile.
        if answer.status_code == UNAUTHENTICATED and (renewed := self._read()) not in (None, text):
            request.headers["Authorization"] = f"Bearer {renewed}"
            yield request

    def _read(self) -> str | None:
        if self._call is not None:
            try:
                return _checked(self._call())
            except ValueError as error:
                raise TokenUnusable(f"The token function: {error}") from None
        if self._text is not None or self._file is None:
            return self._text
        try:
            with self._file.open("rb") as file:
                text = file.read(TOKEN_BYTES_MAX).decode("ascii", "replace")
        except OSError as error:
            raise TokenUnusable(f"The token file cannot be read: {error.strerror}") from None
        try:
            return _checked(text)
        except ValueError as error:
            raise TokenUnusable(f"The token file: {error}") from None


TokenSource = Token | str | Callable[[], str] | None


def _checked(text: str) -> str:
    # The error does not repeat the text: it may be a token with one wrong character.
    if not _TOKEN.fullmatch(text.strip()):
        raise ValueError("expected a token, one word of letters, digits and . _ ~ + / = -")
    return text.strip()
