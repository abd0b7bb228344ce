"""A bus that was put back by hand: its topics are noted as of another life, and begin again."""

from __future__ import annotations

from redis.exceptions import RedisError

from app.bus.connection import BusConnection
from app.stores.store import StoreUnusable

ANOTHER_LIFE = "put-back"
"""No server has such a run id, nor does one that syncs each write note it."""

TOPICS_AT_ONCE = 200


async def note_put_back(url: str, prefix: str) -> int:
    """Have every topic begin another epoch, each at once where a gateway runs; how many there are.

    Raises:
        StoreUnusable: with one sentence for the operator.
        ValueError: not such an address, or not such a prefix.
    """
    connection = BusConnection(url, prefix)
    try:
        names = [name.decode() for name in await connection.ask("HKEYS", _epochs(connection))]
        for start in range(0, len(names), TOPICS_AT_ONCE):
            async with connection.writer.pipeline(transaction=False) as step:
                for name in names[start : start + TOPICS_AT_ONCE]:
                    step.hset(connection.topic_key(name, "state"), "run", ANOTHER_LIFE)
                await step.execute()
    except (RedisError, OSError) as error:
        raise StoreUnusable(f"The bus does not answer: {error}.") from None
    finally:
        await connection.aclose()
    return len(names)


def _epochs(connection: BusConnection) -> str:
    return connection.shared_key("epochs")
