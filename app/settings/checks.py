"""What several settings have to say together."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from typing import NamedTuple


class Disagreement(NamedTuple):
    """The names of settings that do not fit together, and a readable sentence that says why."""

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
    """Yield how strangers could come in unasked, and a policy that has nobody to grant to."""
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
    """Yield what browsers miss to log in at the identity provider, if they are to."""
    if client_id is None:
        if secret_file is not None:
            yield Disagreement(
                ("auth_oidc_secret_file", "auth_oidc_client_id"),
                "auth_oidc_secret_file is of a client, and needs auth_oidc_client_id",
            )
        return
    if keys is None or "://" not in issuer:
        yield Disagreement(
            ("auth_oidc_client_id", "auth_keys", "auth_issuer"),
            "auth_oidc_client_id needs auth_keys, and auth_issuer's address",
        )
    if "openid" not in scope.split():
        yield Disagreement(
            ("auth_oidc_client_id", "auth_oidc_scope"), "auth_oidc_scope contains openid"
        )


def check_certificates(
    cert: str | None, *, cert_key: str | None, client_ca: str | None, policy: str | None
) -> Iterator[Disagreement]:
    """Yield the files of TLS that miss another one."""
    if cert_key is not None and cert is None:
        yield Disagreement(
            ("tls_key", "tls_cert"),
            "tls_key is the key of a certificate, and needs tls_cert (--tls-cert)",
        )
    if client_ca is not None and (cert is None or policy is None):
        yield Disagreement(
            ("tls_client_ca", "tls_cert", "auth_policy"),
            "tls_client_ca needs tls_cert (--tls-cert), and auth_policy (--auth-policy), which "
            "says what certificates may do",
        )
