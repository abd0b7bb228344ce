"""A profile names the functions that the gateway's CPU time went to while it was sampled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from bench import profiles
from bench.servers.gateway import Gateway

pytestmark = pytest.mark.nightly

CPU_S = 0.3


def test_a_profile_names_what_the_gateway_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "SHOWN", 1_000)

    def publishing(held: ExitStack, server: Gateway) -> Callable[[], None]:
        body = b"\n".join(b'{"tickerId":"T%d"}' % number for number in range(1_000))

        def work() -> None:
            end_s = server.process.cpu_s() + CPU_S
            while server.process.cpu_s() < end_s:
                server.publish(body)

        return work

    figures = list(profiles.profile("publishing", publishing))
    shares = {figure.name: figure.value for figure in figures}
    assert sum(shares.values()) == pytest.approx(100)
    assert any(name.startswith("publishing: keys/lines.py ") for name in shares)
    assert shares == dict(sorted(shares.items(), key=lambda item: -item[1]))
