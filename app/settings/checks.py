"""Checks of settings that depend on one another."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from typing import NamedTuple


class Disagreement(NamedTuple):
    """The names of settings that contradict one another, and a sentence that says why."""

    names: tuple[str, ...]
    reason: str


def is_loopback(host: str) -> bool:
    """Return True for `localhost` and addresses that only this machine can reach."""
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def check_authentication(
    host: str, *, insecure: bool, auth_keys: str | None, auth_policy: str | None
) -> Iterator[Disagreement]:
    """Yield a listener that anyone can use without a token, and a policy without tokens."""
    if auth_keys is None and not insecure and not is_loopback(host):
        yield Disagreement(
            ("host", "auth_keys", "insecure"),
            "host is not a loopback address, and there is no authentication: "
            "set auth_keys (--auth-keys), listen on 127.0.0.1, or set insecure (--insecure)",
        )
    if auth_policy is not None and auth_keys is None:
        yield Disagreement(
            ("auth_policy", "auth_keys"),
            "auth_policy grants to subjects, and needs auth_keys (--auth-keys)",
        )


def check_login(
    client_id: str | None, *, secret_file: str | None, keys: str | None, issuer: str, scope: str
) -> Iterator[Disagreement]:
    """Yield missing settings of the login of browsers at an identity provider."""
    if client_id is None:
        if secret_file is not None:
            yield Disagreement(
                ("auth_oidc_secret_file", "auth_oidc_client_id"),
                "auth_oidc_secret_file needs auth_oidc_client_id",
            )
        return
    if keys is None or "://" not in issuer:
        yield Disagreement(
            ("auth_oidc_client_id", "auth_keys", "auth_issuer"),
            "auth_oidc_client_id needs auth_keys, and auth_issuer as a URL",
        )
    if "openid" not in scope.split():
        yield Disagreement(
            ("auth_oidc_client_id", "auth_oidc_scope"), "auth_oidc_scope must contain openid"
        )


def check_certificates(
    cert: str | None,
    *,
    cert_key: str | None,
    client_ca: str | None,
    client_auth: str,
    policy: str | None,
) -> Iterator[Disagreement]:
    """Yield TLS settings whose companion is missing."""
    if cert_key is not None and cert is None:
        yield Disagreement(
            ("tls_key", "tls_cert"),
            "tls_key needs its certificate, tls_cert (--tls-cert)",
        )
    if client_ca is None and client_auth == "required":  # nobody would be asked for one
        yield Disagreement(
            ("tls_client_auth", "tls_client_ca"),
            "tls_client_auth = required needs tls_client_ca (--tls-client-ca)",
        )
    if client_ca is not None and (cert is None or policy is None):
        yield Disagreement(
            ("tls_client_ca", "tls_cert", "auth_policy"),
            "tls_client_ca needs tls_cert (--tls-cert), and auth_policy (--auth-policy), which "
            "says what certificates may do",
        )
