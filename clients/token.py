"""The token of a client: sent with every request, and shown nowhere."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from pathlib import Path

import httpx2

from tidegate.clients.errors import TokenUnusable

TOKEN_VARIABLE = "TIDEGATE_TOKEN"
TOKEN_FILE_VARIABLE = "TIDEGATE_TOKEN_FILE"
TOKEN_BYTES_MAX = 16 << 10

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+", re.ASCII)


class Token(httpx2.Auth):
    """A bearer token, from a text or from a file; without either, requests carry none.

    A file is read at each request, so that whoever renews it need not tell its readers. Processes
    of Spark find the token in their own environment, never in a plan.

    Args:
        text: of the token.
        file: that holds one; it is used if there is no text.

    Raises:
        ValueError: `text` is none.
    """

    def __init__(self, text: str | None = None, file: str | Path | None = None) -> None:
        self._text = None if text is None else _checked(text)
        self._file = None if file is None else Path(file)

    @classmethod
    def of_environment(cls) -> Token:
        """Return the token of TIDEGATE_TOKEN, else of the file that TIDEGATE_TOKEN_FILE names."""
        text = os.environ.get(TOKEN_VARIABLE) or None
        return cls(text, os.environ.get(TOKEN_FILE_VARIABLE) or None)

    def __repr__(self) -> str:
        """Say where the token comes from, never what it is."""
        source = "a text" if self._text is not None else self._file or "nowhere"
        return f"Token(from {source})"

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Add the token to a request.

        Raises:
            TokenUnusable: the file cannot be read, or holds none.
        """
        text = self._read()
        if text is not None:
            request.headers["Authorization"] = f"Bearer {text}"
        yield request

    def _read(self) -> str | None:
        if self._text is not None or self._file is None:
            return self._text
        try:
            with self._file.open("rb") as file:
                text = file.read(TOKEN_BYTES_MAX).decode("ascii", "replace")
        except OSError as error:
            detail = f"The token's file cannot be read: {error.strerror}"
            raise TokenUnusable(detail) from None
        try:
            return _checked(text)
        except ValueError as error:
            raise TokenUnusable(f"The token's file: {error}") from None


def _checked(text: str) -> str:
    # The error does not repeat the text: it may be a token with a slip in it.
    if not _TOKEN.fullmatch(text.strip()):
        raise ValueError("expected a token, one word of letters, digits and . _ ~ + / = -")
    return text.strip()
