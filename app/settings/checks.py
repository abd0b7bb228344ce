"""What several settings have to say together."""

from __future__ import annotations

import contextlib
import ipaddress


def is_loopback(host: str) -> bool:
    """Return True for `localhost` and addresses that only this machine can reach."""
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def check_authentication(
    host: str, *, insecure: bool, auth_keys: str | None, auth_policy: str | None
) -> None:
    """Check that strangers cannot come in unasked.

    Raises:
        ValueError: they could, or a policy has nobody to grant to.
    """
    if auth_keys is None and not insecure and not is_loopback(host):
        raise ValueError(
            "host is not a loopback address, and there is no authentication: "
            "set auth_keys (--auth-keys), listen on 127.0.0.1, or set insecure (--insecure)"
        )
    if auth_policy is not None and auth_keys is None:
        raise ValueError("auth_policy grants to subjects, and needs auth_keys (--auth-keys)")


def check_login(
    client_id: str | None, *, secret_file: str | None, keys: str | None, issuer: str, scope: str
) -> None:
    """Check that browsers can log in at the identity provider, if they are to.

    Raises:
        ValueError: something is missing.
    """
    if client_id is None:
        if secret_file is not None:
            raise ValueError("auth_oidc_secret_file is of a client, and needs auth_oidc_client_id")
        return
    if keys is None or "://" not in issuer:
        raise ValueError("auth_oidc_client_id needs auth_keys, and auth_issuer's address")
    if "openid" not in scope.split():
        raise ValueError("auth_oidc_scope contains openid")


def check_certificates(
    cert: str | None, *, cert_key: str | None, client_ca: str | None, policy: str | None
) -> None:
    """Check that the files of TLS fit.

    Raises:
        ValueError: one is missing.
    """
    if cert_key is not None and cert is None:
        raise ValueError("tls_key is the key of a certificate, and needs tls_cert (--tls-cert)")
    if client_ca is not None and (cert is None or policy is None):
        raise ValueError(
            "tls_client_ca needs tls_cert (--tls-cert), and auth_policy (--auth-policy), which "
            "says what certificates may do"
        )
