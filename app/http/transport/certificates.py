"""The certificate by which the gateway is known, and the authorities of its clients."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Final

from tidegate.app.logs import event
from tidegate.app.settings.settings import Settings, SettingsInvalid

logger = logging.getLogger("tidegate.tls")

# Forward secrecy and authenticated encryption only; those of TLS 1.3 are all of that kind.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"


class Certificates:
    """The gateway's certificate and the authority of its clients, as new connections use them.

    Raises:
        SettingsInvalid: the files cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.context = _context(settings)

    def reload(self) -> None:
        """Read the files again; keep the last good ones if they cannot be used."""
        try:
            self.context = _context(self._settings)
        except SettingsInvalid as error:
            figures = event("certificate-not-read", reason=str(error))
            logger.warning("the certificate stays as it is: %s", error, extra=figures)
        else:
            logger.info("the certificate was read again", extra=event("certificate-read"))


def _context(settings: Settings) -> ssl.SSLContext:
    assert settings.tls_cert is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    # A client of TLS 1.2 could make the gateway compute one handshake after another.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _load_certificate(context, settings.tls_cert, settings.tls_key)
    if settings.tls_client_ca is not None:
        is_required = settings.tls_client_auth == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        _check_readable("tls_client_ca", settings.tls_client_ca)
        try:
            context.load_verify_locations(settings.tls_client_ca)
        except ssl.SSLError:
            reason = f"tls_client_ca: {settings.tls_client_ca}: no certificates in PEM"
            raise SettingsInvalid(reason) from None
    return context


def _load_certificate(context: ssl.SSLContext, cert: str, key_file: str | None) -> None:
    for name, path in (("tls_cert", cert), ("tls_key", key_file)):
        if path is not None:
            _check_readable(name, path)
    try:
        # Without the function OpenSSL would ask for a passphrase at the terminal.
        context.load_cert_chain(cert, key_file, password=_no_passphrase)
    except _KeyEncrypted:
        name = "tls_cert" if key_file is None else "tls_key"
        raise SettingsInvalid(f"{name}: {key_file or cert}: the key is encrypted") from None
    except ssl.SSLError as error:
        reason = (error.reason or "not PEM").replace("_", " ").lower()
        if "mismatch" in reason:
            raise SettingsInvalid(
                f"tls_key: {key_file or cert}: not the certificate's key"
            ) from None
        what = f"{cert}: no certificate" if key_file else f"{cert}: no certificate with its key"
        raise SettingsInvalid(f"tls_cert: {what} in PEM ({reason})") from None


class _KeyEncrypted(Exception):
    """A key asks for a passphrase."""


def _no_passphrase() -> str:
    raise _KeyEncrypted


def _check_readable(name: str, path: str) -> None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SettingsInvalid(f"{name}: {path}: cannot be read: {reason}") from None
