"""What a proxy before the gateway says of its clients; nobody else is believed."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

FORWARDED: Final = "tidegate.forwarded"
"""The place in a request's scope of what a trusted proxy has said."""

Fields = Sequence[tuple[bytes, bytes]]
SCHEMES: Final = frozenset({"http", "https"})


class Forwarded(NamedTuple):
    """What a trusted proxy says of a request; None for what it does not say."""

    client: str
    scheme: str | None
    host: str | None


class TrustedProxies:
    """Addresses whose `X-Forwarded-…` header fields are believed.

    Args:
        networks: addresses and networks, such as `10.1.0.0/16`.
    """

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]
        # Few proxies make all connections, and each request asks.
        self.trusts = lru_cache(maxsize=1_024)(self._trusts)

    def _trusts(self, address: str) -> bool:
        """Return True for a proxy of ours."""
        parsed = _address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def note(self, scope: Any) -> str:
        """Put what a proxy says of a request into its scope; return the client's address."""
        peer = scope["client"]
        said = self.read(scope["headers"], peer[0])
        scope[FORWARDED] = said
        scope["client"] = peer if said.client == peer[0] else (said.client, 0)
        scope["scheme"] = said.scheme or scope["scheme"]
        return said.client

    def read(self, fields: Fields, peer: str) -> Forwarded:
        """Return what the proxy at `peer` says.

        Each proxy appends the address that it was asked from. So the client is the last address
        that is no proxy of ours; the client may have made up those before it.
        """
        client = peer
        for text in reversed(_values(fields, b"x-forwarded-for")):
            address = _address(text)
            if address is None:
                break
            client = str(address)
            if not self.trusts(client):
                break
        schemes = _values(fields, b"x-forwarded-proto")
        hosts = _values(fields, b"x-forwarded-host")
        scheme = schemes[-1].lower() if schemes else None
        # An empty host stays: it is none that the gateway answers to.
        return Forwarded(
            client, scheme if scheme in SCHEMES else None, hosts[-1] if hosts else None
        )


def _values(fields: Fields, name: bytes) -> list[str]:
    texts = [value.decode("latin-1") for key, value in fields if key == name]
    return [part.strip() for text in texts for part in text.split(",")]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address, with a port or without; None for what is none."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
