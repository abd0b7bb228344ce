"""Checks of settings that depend on one another."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple


class Disagreement(NamedTuple):
    """The names of settings that contradict one another, and a sentence that says why."""

    names: tuple[str, ...]
    reason: str


NEEDS: Final = {
    "auth_issuer": "auth_keys",
    "auth_audience": "auth_keys",
    "auth_policy": "auth_keys",
    "auth_oidc_client_id": "auth_keys",
    "auth_oidc_secret_file": "auth_oidc_client_id",
    "auth_oidc_scope": "auth_oidc_client_id",
    "auth_oidc_logout": "auth_oidc_client_id",
    "subject_sessions_max": "auth_keys",
    "subject_subscriptions_max": "auth_keys",
    "subject_lanes_max": "auth_keys",
    "subject_topics_max": "auth_keys",
    "subject_publish_messages_max": "auth_keys",
    "subject_publish_bytes_max": "auth_keys",
    "subject_journal_reads_max": "auth_keys",
    "tls_key": "tls_cert",
    "tls_client_ca": "tls_cert and auth_policy",
    "tls_client_auth": "tls_client_ca",
    "hsts": "tls_cert or trusted_proxies",
    "redis_prefix": "redis",
    "redis_replicas": "redis",
}
"""Settings that have an effect only together with others: with all of them, or with one of them."""


def check_needs(is_set: Callable[[str], bool]) -> Iterator[Disagreement]:
    """Yield settings that have no effect, as others that they need are missing.

    Args:
        is_set: whether a setting differs from its default.
    """
    for name, needed in NEEDS.items():
        words = needed.split()
        others = tuple(word for word in words if word not in {"and", "or"})
        is_met = any if "or" in words else all
        if is_set(name) and not is_met(map(is_set, others)):
            yield Disagreement((name, *others), f"{name} has no effect without {needed}")


def is_loopback(host: str) -> bool:
    """Return True for `localhost` and addresses that only this machine can reach."""
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def check_authentication(
    host: str, *, insecure: bool, auth_keys: str | None
) -> Iterator[Disagreement]:
    """Yield a disagreement if anyone can use the listener without a token."""
    if auth_keys is None and not insecure and not is_loopback(host):
        yield Disagreement(
            ("host", "auth_keys", "insecure"),
            "host is not a loopback address, and there is no authentication: "
            "set auth_keys (--auth-keys), listen on 127.0.0.1, or set insecure (--insecure)",
        )


def check_login(client_id: str | None, *, issuer: str, scope: str) -> Iterator[Disagreement]:
    """Yield values that do not fit the login of browsers at an identity provider."""
    if client_id is None:
        return
    if "://" not in issuer:
        yield Disagreement(
            ("auth_oidc_client_id", "auth_issuer"),
            "auth_oidc_client_id needs auth_issuer as a URL",
        )
    if "openid" not in scope.split():
        yield Disagreement(
            ("auth_oidc_client_id", "auth_oidc_scope"), "auth_oidc_scope must contain openid"
        )
