"""Origins: which web pages may have a browser change something here.

A browser sends some requests of any page to any address without asking first, be it that the
page may not read the answer: text to a topic on this machine would be published by a page of
anybody. It names the page's origin with them, and that is looked at.
"""

from __future__ import annotations

from starlette.types import Scope

from app.problems import Problem

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def check_origin(scope: Scope, allowed: frozenset[str]) -> None:
    """Refuse what a page of another origin would change; who is no browser names none.

    Args:
        scope: of a request whose Host is one of ours.
        allowed: origins beside the one that Host tells, such as `https://desk.example`.

    Raises:
        Problem: origin-not-allowed.
    """
    if scope["method"] in SAFE_METHODS:
        return
    origins = _values(scope, b"origin")
    if any(origin not in allowed and not _is_own(scope, origin) for origin in origins):
        raise Problem("origin-not-allowed", "A page of another origin may not change anything.")
    if not origins and "cross-site" in _values(scope, b"sec-fetch-site"):
        raise Problem("origin-not-allowed", "A page of another site may not change anything.")


def _is_own(scope: Scope, origin: str) -> bool:
    """Whether a page of `origin` came from here: a proxy before us may have spoken TLS with it."""
    scheme, _, authority = origin.partition("://")
    if scheme not in DEFAULT_PORTS:
        return False
    default_port = DEFAULT_PORTS[scheme]
    [host] = _values(scope, b"host")
    return authority.removesuffix(default_port) == host.removesuffix(default_port)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1").lower() for key, value in scope["headers"] if key == name]
