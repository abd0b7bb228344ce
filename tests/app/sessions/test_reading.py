"""Reading: a reader is one, and has everything that a session asks of it."""

from __future__ import annotations

from app.sessions.reading import Reading
from tests.support.rooms import room


async def test_a_reader_is_reading() -> None:
    async with room() as here:
        reader, _ = here.read(here.kept())
        reading: Reading = reader
        asked = [name for name in dir(Reading) if not name.startswith("_")]
        assert len(asked) >= 8
        for name in (*asked, *Reading.__annotations__):
            assert hasattr(reading, name), name
