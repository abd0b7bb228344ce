"""Readiness: why the gateway should get no traffic, and which topics have faults."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from tidegate.app.gateway import Gateway

STORE_S_MAX = 2.0
FAULTS_SHOWN_MAX = 100


class Fault(NamedTuple):
    """A topic with a fault, while the gateway serves the others."""

    topic: str
    state: str
    reason: str


def faults(gateway: Gateway) -> list[Fault]:
    """Return topics that are unusable, and topics that are served but cannot be derived."""
    catalog = gateway.catalog
    return [
        *(Fault(each.name, "unusable", each.reason) for each in catalog.all_unusable()),
        *(Fault(name, "unfilled", reason) for name, reason in catalog.filling.reasons.items()),
    ]


async def unready(gateway: Gateway) -> str | None:
    """Return why the gateway should get no traffic, or None.

    The store is asked each time, so that the reply is current.
    """
    if not gateway.ready:
        return "it is shutting down" if gateway.stopping else "the store has not answered yet"
    if gateway.outage.is_on:
        return f"the {gateway.outage.source} is out"
    try:
        async with asyncio.timeout(STORE_S_MAX):
            return await gateway.store.fault()
    except TimeoutError:
        return "the store does not answer in time"
