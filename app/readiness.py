"""Readiness: whether the gateway should get traffic just now, and if not why."""

from __future__ import annotations

import asyncio

from app.gateway import Gateway

LOOK_S_MAX = 2.0


async def unready(gateway: Gateway) -> str | None:
    """Why the gateway should get no traffic; None if it should.

    The store is asked each time, so that what is told is of now.
    """
    if not gateway.ready:
        return "it is shutting down" if gateway.stopping else "the store has not answered yet"
    if gateway.outage.is_on:
        return f"the {gateway.outage.source} is out"
    try:
        async with asyncio.timeout(LOOK_S_MAX):
            return await gateway.store.fault()
    except TimeoutError:
        return "the store does not answer in time"
