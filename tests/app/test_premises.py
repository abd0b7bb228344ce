"""Premises: a gateway is some, and has everything that they promise."""

from __future__ import annotations

from app.gateway import Gateway
from app.premises import Premises
from tests.support.rooms import room


async def test_a_gateway_is_premises() -> None:
    async with room() as here:
        premises: Premises = here.gateway
        assert isinstance(premises, Gateway)
        for name in Premises.__annotations__:
            assert getattr(premises, name) is not None
        assert premises.new_session_id() != premises.new_session_id()
