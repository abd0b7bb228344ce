"""A store that gateways share says so."""

from __future__ import annotations

import pytest

from app.bus.connection import BusConnection
from app.bus.definitions import Definitions
from app.bus.redis_store import RedisStore
from app.mergers import Mergers
from app.settings import Settings
from app.stores.shared import SharedStore


@pytest.mark.redis
async def test_the_store_on_the_bus_is_one(redis_url: str) -> None:
    connection = BusConnection(redis_url, "shared")
    store: SharedStore = RedisStore(connection, Settings(), Definitions(connection, Mergers()))
    assert store.shared
    await store.aclose()
