"""Requests of the gateway to the issuer: small answers, only from addresses in the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from tidegate.app.settings.checks import is_loopback

ANSWER_S_MAX: Final = 5.0
ANSWER_BYTES_MAX: Final = 256 << 10
UNCOMPRESSED: Final = {"Accept-Encoding": "identity"}


class Unreachable(Exception):
    """No answer that can be used; `str()` says why."""


def is_safe(address: str) -> bool:
    """Return True for https, and for http on this machine, without user and password."""
    try:
        parts = urlsplit(address)
        has_safe_scheme = parts.scheme == "https" or (
            parts.scheme == "http" and is_loopback(parts.hostname or "")
        )
        return has_safe_scheme and bool(parts.hostname) and parts.username is None
    except ValueError:
        return False


async def fetch(
    address: str, form: Mapping[str, str] | None = None, credentials: tuple[str, str] | None = None
) -> tuple[int, bytes]:
    """Return the status and the body of an answer; redirects are not followed.

    Args:
        address: one that `is_safe`.
        form: what a POST sends; without it the request is a GET.
        credentials: name and password of a POST, already encoded as the receiver reads them.

    Raises:
        Unreachable: no answer within `ANSWER_S_MAX`, or more than `ANSWER_BYTES_MAX`.
    """
    import httpx2  # only gateways with an issuer at an address are clients

    # No environment: a proxy variable must not send secrets elsewhere.
    client = httpx2.AsyncClient(trust_env=False)
    method = "GET" if form is None else "POST"
    auth = None if credentials is None else httpx2.BasicAuth(*credentials)
    body = b""
    try:
        # One limit for the whole answer: a timeout of the client restarts with each piece.
        async with (
            asyncio.timeout(ANSWER_S_MAX),
            client,
            client.stream(method, address, data=form, auth=auth, headers=UNCOMPRESSED) as answer,
        ):
            # Raw: a few compressed bytes could unpack to more than there is memory for.
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise Unreachable(f"it sent more than {ANSWER_BYTES_MAX} bytes")
            return answer.status_code, body
    except (httpx2.HTTPError, TimeoutError) as error:
        raise Unreachable(type(error).__name__) from None
