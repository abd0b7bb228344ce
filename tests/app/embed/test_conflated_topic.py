"""A conflated topic in an application: publishing, removals, bounds, rows without HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest

from tests.support.gateways import eventually
from tests.support.rules import rule
from tidegate.embed import ConflatedTopic, Refusal, Row, SubscriptionClosed, TopicLimits


@contextlib.asynccontextmanager
async def following(
    topic: ConflatedTopic, options: str = "", **more: Any
) -> AsyncIterator[list[list[Row]]]:
    """The flushes of a subscription as they come, while the block runs."""
    flushes: list[list[Row]] = []
    note = flushes.append

    async def follow() -> None:
        async with contextlib.aclosing(topic.subscribe(options, **more)) as found:
            async for rows in found:
                note(rows)

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.001)
    try:
        yield flushes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def shown(flushes: list[list[Row]]) -> list[list[tuple[str, Any]]]:
    """The op and the value of each row, flush by flush."""
    return [[(row.op, row.value) for row in rows] for rows in flushes]


async def test_a_subscriber_gets_the_records_and_then_the_newest_of_each_interval() -> None:
    prices = ConflatedTopic(key=["/symbol"])
    await prices.publish({"symbol": "IBM", "price": 1}, {"symbol": "AIG", "price": 2})
    async with following(prices, "conflation=1s") as flushes:
        await asyncio.sleep(2)
        for price in range(10, 20):
            await prices.publish({"symbol": "IBM", "price": price})
        await asyncio.sleep(2)
    assert shown(flushes) == [
        [("snapshot", {"symbol": "IBM", "price": 1}), ("snapshot", {"symbol": "AIG", "price": 2})],
        [("publish", {"symbol": "IBM", "price": 19})],
    ]
    assert flushes[0][0].key == ["IBM"]


@rule("embed-2")
async def test_a_loop_that_takes_long_gets_the_newest_and_nothing_waits_for_it() -> None:
    prices = ConflatedTopic(key=["/symbol"])
    seen = []
    async with contextlib.aclosing(prices.subscribe("conflation=50ms")) as flushes:
        publishing = asyncio.create_task(tick(prices, 100))
        async for rows in flushes:
            seen.append(rows[-1].value["price"])
            await asyncio.sleep(0.5)
            if seen[-1] == 99:
                break
    await publishing
    assert len(seen) < 10
    assert seen == sorted(set(seen))


async def tick(topic: ConflatedTopic, count: int) -> None:
    for price in range(count):
        await topic.publish({"symbol": "IBM", "price": price})
        await asyncio.sleep(0.02)


async def test_removals_and_expiry_are_rows_with_a_reason() -> None:
    prices = ConflatedTopic(key=["/symbol"], expiration="1s")
    async with following(prices, "conflation=100ms,oof") as flushes:
        await prices.publish({"symbol": "IBM", "price": 1}, {"symbol": "AIG", "price": 2})
        await asyncio.sleep(0.2)
        assert await prices.remove("IBM", "IBM", "unknown") == 1
        await asyncio.sleep(2)
    removals = [(row.key, row.reason) for rows in flushes for row in rows if row.op == "oof"]
    assert removals == [(["IBM"], "deleted"), (["AIG"], "expired")]


async def test_many_records_expire_and_one_that_was_published_again_stays() -> None:
    prices = ConflatedTopic(key=["/symbol"], expiration="1s")
    await prices.publish(*({"symbol": number} for number in range(1_200)))
    await asyncio.sleep(0.9)
    await prices.publish({"symbol": 7, "again": True})
    await asyncio.sleep(0.5)
    assert await snapshot(prices) == [{"symbol": 7, "again": True}]


async def snapshot(topic: ConflatedTopic, **more: Any) -> list[Any]:
    """The records of a topic."""
    found = topic.subscribe(command="sow", **more)
    return [row.value async for rows in found for row in rows]


async def test_a_key_of_several_fields_is_removed_by_a_list() -> None:
    orders = ConflatedTopic(key=["/desk", "/id"])
    await orders.publish({"desk": "a", "id": 1}, {"desk": "a", "id": 2})
    assert await orders.remove(["a", 1.0]) == 1
    assert await snapshot(orders) == [{"desk": "a", "id": 2}]
    with pytest.raises(Refusal, match="2 fields"):
        await orders.remove("a")


@dataclass
class Price:
    symbol: str
    price: int


class Model:
    """What a model of pydantic is to a publisher."""

    def model_dump(self, mode: str) -> dict[str, Any]:
        assert mode == "python"
        return {"symbol": "m", "price": 3}


async def test_messages_are_mappings_objects_and_bytes_as_they_are() -> None:
    prices = ConflatedTopic(key=["/symbol"])
    await prices.publish(
        {"symbol": "d", "price": Decimal("1.10")},
        Price("o", 2),
        Model(),
        b'{"symbol": "b",\n "price": 1.50}',
        bytearray(b'{"symbol": "v"}'),
    )
    found = [row.value_text async for rows in prices.subscribe(command="sow") for row in rows]
    assert found == [
        b'{"symbol":"d","price":1.10}',
        b'{"symbol":"o","price":2}',
        b'{"symbol":"m","price":3}',
        b'{"symbol": "b",  "price": 1.50}',
        b'{"symbol": "v"}',
    ]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b'{"symbol": ', "message-invalid"),
        (b'{"symbol": "a", "price": 1e999}', "message-invalid"),
        ({"price": 1}, "key-missing"),
        ({"symbol": None}, "key-invalid"),
        ({"symbol": ["a"]}, "key-invalid"),
        ({"symbol": "a", "price": object()}, "message-invalid"),
        ({"symbol": "a", "price": nan}, "message-invalid"),
        ({"symbol": "a", "price": Decimal("Infinity")}, "message-invalid"),
        ({"symbol": "a", "price": Decimal("1e999")}, "message-invalid"),
        ({"symbol": "\ud800"}, "message-invalid"),
    ],
)
async def test_a_message_that_is_refused_takes_the_others_of_its_call_along(
    message: Any, code: str
) -> None:
    prices = ConflatedTopic(key=["/symbol"])
    with pytest.raises(Refusal) as refused:
        await prices.publish({"symbol": "before"}, message, {"symbol": "after"})
    assert refused.value.code == code
    assert await snapshot(prices) == []
    assert (await prices.publish({"symbol": "a"})).endswith("-1")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ([{"symbol": "a"}], "it is an array, not an object; several are publish(*messages)"),
        ('{"symbol": "a"}', "it is a string, not an object; JSON text is passed as bytes"),
        ({"symbol": "a", "price": object()}, "a message cannot hold a value of type object"),
        ({"symbol": "a", "prices": [1, -inf]}, "/prices/1 is -inf, which JSON cannot represent"),
    ],
)
async def test_a_refusal_says_what_is_wrong_with_the_argument(message: Any, said: str) -> None:
    with pytest.raises(Refusal) as refused:
        await ConflatedTopic(key=["/symbol"]).publish(message)
    assert said in refused.value.detail


async def test_a_key_that_json_cannot_say_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        await ConflatedTopic(key=["/symbol"]).remove(nan)
    assert refused.value.code == "key-invalid"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"key": ["symbol"]}, "key-invalid"),
        ({"key": "/symbol"}, "key-invalid"),
        ({"key": ["/a", "/a"]}, "key-invalid"),
        ({"options": "conflation=fast"}, "options-invalid"),
        ({"merge": {"/v": "add"}}, "key-invalid"),
        ({"key": ["/v"], "merge": {"/v": "sum"}}, "topic-invalid"),
        ({"key": ["/v"], "expiration": "soon"}, "options-invalid"),
        ({"key": ["/v"], "expiration": "1us"}, "topic-invalid"),
        ({"conflation": "never"}, "policy-invalid"),
        ({"name": "a b"}, "topic-invalid"),
    ],
)
def test_a_definition_that_is_not_valid_is_refused(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(Refusal) as refused:
        ConflatedTopic(**fields)
    assert refused.value.code == code


def test_one_path_is_a_list_too() -> None:
    with pytest.raises(Refusal, match=r'a list of paths, such as \["/symbol"\]'):
        ConflatedTopic(key="/symbol")


@rule("embed-3")
@pytest.mark.parametrize(
    ("asked", "code", "position"),
    [
        ({"options": "conflation=1s,top=3"}, "options-invalid", 14),
        ({"options": "x" * 5_000}, "options-invalid", 4_096),
        ({"filter": "/price >"}, "filter-invalid", 8),
        ({"command": "snapshot"}, "options-invalid", None),
    ],
)
async def test_what_is_asked_for_is_refused_at_the_call_with_its_position(
    asked: dict[str, Any], code: str, position: int | None
) -> None:
    with pytest.raises(Refusal) as refused:
        ConflatedTopic(key=["/symbol"]).subscribe(**asked)
    assert (refused.value.code, refused.value.position) == (code, position)


async def test_filters_orders_and_merges_are_those_of_the_gateway() -> None:
    trades = ConflatedTopic(key=["/symbol"], merge={"/volume": "sum"}, options="conflation=1s")
    await trades.publish(*({"symbol": name, "volume": 1} for name in "abc"))
    assert await snapshot(trades, filter="/symbol > 'a'", order_by="/symbol DESC") == [
        {"symbol": "c", "volume": 1},
        {"symbol": "b", "volume": 1},
    ]
    async with following(trades, command="subscribe", filter="/symbol = 'b'") as flushes:
        await trades.publish(*({"symbol": "b", "volume": 2} for _ in range(5)))
        await asyncio.sleep(2)
    assert shown(flushes) == [[("publish", {"symbol": "b", "volume": 10})]]


@rule("embed-2")
async def test_a_reader_of_every_message_has_a_bounded_queue() -> None:
    limits = TopicLimits(queue_messages_max=10, journal_messages_max=5)
    log = ConflatedTopic(conflation="off", limits=limits)
    found = log.subscribe("conflation=none")
    opened = asyncio.create_task(anext(found))
    await asyncio.sleep(0.001)
    await log.publish({"n": 0})
    assert [row.value for row in await opened] == [{"n": 0}]
    for number in range(1, 50):
        await log.publish({"n": number})
    with pytest.raises(SubscriptionClosed, match="MESSAGE_QUEUE_LIMIT_REACHED"):
        await anext(found)


async def test_a_slow_reader_of_every_message_is_conflated_where_the_topic_has_a_key() -> None:
    prices = ConflatedTopic(key=["/symbol"], limits=TopicLimits(queue_messages_max=10))
    async with contextlib.aclosing(prices.subscribe("conflation=none")) as found:
        opened = asyncio.create_task(anext(found))
        await asyncio.sleep(0.001)
        await prices.publish({"symbol": "a", "n": 0})
        await opened
        for number in range(1, 50):
            await prices.publish({"symbol": "a", "n": number})
        rows = await anext(found)
    assert rows[-1].value == {"symbol": "a", "n": 49}
    assert len(rows) <= 10


async def test_readers_lanes_and_keys_are_bounded() -> None:
    limits = TopicLimits(sessions_max=2, topic_lanes_max=1, topic_keys_max=2)
    prices = ConflatedTopic(key=["/symbol"], limits=limits)
    await prices.publish({"symbol": "a"}, {"symbol": "b"})
    with pytest.raises(Refusal, match="topic_keys_max"):
        await prices.publish({"symbol": "a"}, {"symbol": "c"})
    await prices.publish({"symbol": "a", "again": True})
    async with following(prices, "conflation=1s"):
        with pytest.raises(Refusal, match="different lanes"):
            await anext(prices.subscribe("conflation=2s"))
        async with following(prices, "conflation=1s"):
            with pytest.raises(Refusal, match="2 sessions"):
                await anext(prices.subscribe("conflation=1s"))
    async with following(prices, "conflation=2s") as flushes:  # what has ended leaves room
        await eventually(lambda: bool(flushes), "the snapshot")


async def test_a_loop_that_breaks_off_leaves_no_reader() -> None:
    prices = ConflatedTopic(key=["/symbol"], limits=TopicLimits(sessions_max=1))
    await prices.publish({"symbol": "a"})
    for _ in range(3):
        async for _ in prices.subscribe("conflation=1s"):
            break
        await asyncio.sleep(0.01)


async def test_close_ends_every_subscription_and_the_topic_stays_usable() -> None:
    prices = ConflatedTopic(key=["/symbol"])
    prices.close()  # nobody is there
    ended = asyncio.create_task(all_of(prices))
    await asyncio.sleep(0.001)
    await prices.publish({"symbol": "a"})
    await asyncio.sleep(0.001)
    prices.close()
    assert [row.value for row in await ended] == [{"symbol": "a"}]
    await prices.publish({"symbol": "b"})
    assert await snapshot(prices) == [{"symbol": "a"}, {"symbol": "b"}]


async def all_of(topic: ConflatedTopic) -> list[Row]:
    return [row async for rows in topic.subscribe("conflation=none") for row in rows]


async def test_publishers_in_several_tasks_have_one_order() -> None:
    prices = ConflatedTopic(key=["/symbol"], limits=TopicLimits(queue_messages_max=100))
    async with following(prices, "conflation=none") as flushes:
        await asyncio.gather(*(publish_many(prices, name) for name in "abc"))
        await eventually(lambda: sum(map(len, flushes)) == 9_000, "all have come")
    for name in "abc":
        values = [row.value for rows in flushes for row in rows]
        assert [it["n"] for it in values if it["symbol"] == name] == [*range(3_000)]


async def publish_many(topic: ConflatedTopic, name: str) -> None:
    await topic.publish(*({"symbol": name, "n": number} for number in range(3_000)))


async def test_a_publish_that_is_cancelled_is_finished() -> None:
    prices = ConflatedTopic(key=["/symbol"], limits=TopicLimits(queue_messages_max=100))
    publishing = asyncio.create_task(publish_many(prices, "a"))
    await asyncio.sleep(0)  # it has published a part, and waits for streams
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    assert await snapshot(prices) == [{"symbol": "a", "n": 2_999}]


async def test_a_publisher_that_never_waits_lets_streams_write() -> None:
    prices = ConflatedTopic(key=["/symbol"])
    async with following(prices, "conflation=none") as flushes:
        for number in range(20_000):
            await prices.publish({"symbol": "a", "n": number})
            if len(flushes) > 3:
                break
    assert len(flushes) > 3


@rule("embed-4")
def test_the_records_stay_where_the_loop_of_a_topic_is_closed() -> None:
    prices = ConflatedTopic(key=["/symbol"], expiration="1h", limits=TopicLimits(sessions_max=1))

    async def leave_open() -> None:
        await prices.publish({"symbol": "a"})
        left.append(prices.subscribe("conflation=1s"))
        await anext(left[0])

    left: list[Any] = []
    runner = asyncio.Runner()
    runner.run(leave_open())
    runner.get_loop().close()  # and nothing of what is open is told
    assert asyncio.run(snapshot(prices)) == [{"symbol": "a"}]
    assert asyncio.run(snapshot(prices)) == [{"symbol": "a"}]


@rule("embed-4")
async def test_another_loop_may_not_use_a_topic() -> None:
    prices = ConflatedTopic(key=["/symbol"])
    await prices.publish({"symbol": "a"})
    with pytest.raises(RuntimeError, match="the topic 'topic' belongs to another event loop"):
        await asyncio.to_thread(asyncio.run, prices.publish({"symbol": "a"}))
