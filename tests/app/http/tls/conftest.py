"""Connections with TLS, before and after their handshake."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.app.http.tls.pairs import DEADLINE_S, Connect, Pair, Settled
from tests.support.certificates import Authority, Signed
from tidegate.app.http.transport.certificates import Certificates
from tidegate.app.http.transport.tls import Handshakes
from tidegate.app.settings.settings import Settings


@pytest.fixture
def signed(authority: Authority) -> Signed:
    return authority.server()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def settled(authority: Authority, signed: Signed) -> Settled:
    def make(**more: Any) -> Settings:
        files = {"tls_cert": str(signed.cert), "tls_key": str(signed.key)}
        return Settings().model_copy(update={**files, **more})

    return make


@pytest.fixture
def served() -> set[Any]:
    """What the server ends at a shutdown."""
    return set()


@pytest.fixture
def handshakes(settled: Settled, served: set[Any]) -> Handshakes:
    return Handshakes(Certificates(settled()), DEADLINE_S, served)


@pytest.fixture
def connect(handshakes: Handshakes, authority: Authority) -> Connect:
    def make(trusting: ssl.SSLContext | None = None, given: Handshakes | None = None) -> Pair:
        return Pair(given or handshakes, trusting or authority.trusting())

    return make


@pytest.fixture(name="pair")
async def pair_fixture(connect: Connect) -> Pair:
    """A connection after its handshake."""
    pair = connect()
    pair.complete_handshake()
    return pair
