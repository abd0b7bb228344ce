"""The certificate of a client, which an authority of ours has signed."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# As a gateway names the client to another one; from a client's own request it is not taken.
CERTIFICATE_FIELD: Final = b"tidegate-certificate"
NAME_KINDS: Final = ("DNS", "URI", "email")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,255}")


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A client's certificate that an authority of ours has signed."""

    name: str
    expires_ms: int

    @classmethod
    def of(cls, verified: Mapping[str, Any]) -> ClientCertificate | None:
        """Return the certificate as Python's `getpeercert` shows it; None for one without a name.

        The name is the first DNS name, URI or e-mail address, else the common name.
        """
        alternatives = verified.get("subjectAltName", ())
        attributes = [pair for part in verified.get("subject", ()) for pair in part]
        names = [value for kind, value in alternatives if kind in NAME_KINDS]
        names += [value for name, value in attributes if name == "commonName"]
        if not names or not _NAME.fullmatch(names[0]):
            return None
        return cls(names[0], int(ssl.cert_time_to_seconds(verified["notAfter"]) * 1_000))

    def field(self) -> tuple[bytes, bytes]:
        """Return the header field of a call to another gateway."""
        return CERTIFICATE_FIELD, f"{self.expires_ms} {self.name}".encode()

    @classmethod
    def of_field(cls, value: bytes) -> ClientCertificate:
        """Return the certificate that another gateway has verified."""
        expires_ms, _, name = value.decode().partition(" ")
        return cls(name, int(expires_ms))
