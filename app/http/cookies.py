"""The cookies of a login: for this origin alone, and for no script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from starlette.types import Scope

from tidegate.app.refusals import Refused

SESSION: Final = "__Host-tidegate"
"""Holds the token. Browsers take this prefix from a secure origin only, and for no other host."""
PENDING: Final = "__Host-tidegate-login"
"""Holds a login that has begun at the identity provider."""
BYTES_MAX: Final = 4096
"""Of a name and its value together: browsers drop what is longer, without a word."""


def cookies(scope: Scope, name: str) -> Iterator[str]:
    """Yield the values of all cookies of this name in a request."""
    for header, value in scope["headers"]:
        if header == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                key, equals, text = pair.strip().partition("=")
                if equals and key == name:
                    yield text


def set_cookie(name: str, value: str, seconds: int, same_site: str = "Strict") -> str:
    """Return the value of `Set-Cookie`; 0 seconds remove the cookie.

    Args:
        name: one of this module.
        value: letters, digits, dots, `-` and `_`, so that it can forge no attribute.
        seconds: how long the browser keeps it.
        same_site: `Lax` for a cookie that must come along when another site leads back here.
    """
    flags = f"Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite={same_site}"
    return f"{name}={value}; {flags}"


def check_size(token: str) -> None:
    """Refuse a token that browsers would not keep: its login would end at once, without a reason.

    Raises:
        Refused: message-too-large.
    """
    if len(SESSION) + len(token) > BYTES_MAX:
        detail = f"Browsers keep cookies of {BYTES_MAX} bytes, and the token is longer; have the "
        raise Refused("message-too-large", detail + "identity provider put fewer claims into it.")
