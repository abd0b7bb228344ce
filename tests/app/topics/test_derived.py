"""Conflated topics and views: filled from a source, exactly, and changed as they run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.clocks.manual import Clock
from tests.support.place import Place
from tests.support.rules import rule
from tidegate.app.definitions.topic import Unusable
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.stores.items import Message
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.store import Appended, Publication, Store, TopicRecord
from tidegate.conflation.frame import Frame, RemovalReason, RestoredTopic
from tidegate.conflation.outputs import Output
from tidegate.keys.text.duration import SECOND

PX = {"topic": "px", "interval": "1s"}


class Filled(Place):
    """A place whose time a test moves, with a keyed topic px."""

    def __init__(self, store: Store | None = None) -> None:
        self.clock = Clock()
        super().__init__(store, clock=self.clock)

    async def pass_time(self, seconds: float = 1.0) -> None:
        """Let intervals end, and fillers write."""
        self.clock.forward(self.driver, int(seconds * SECOND))
        await self.settled()

    async def settled(self) -> None:
        """Let every task go as far as it can."""
        for _ in range(50):
            await asyncio.sleep(0)

    def journal(self, name: str) -> list[tuple[str, bytes]]:
        """What a topic was told: key and payload, of removals the reason in capitals."""
        frames = self.driver.engine.topic(name).journal.after(0)
        return [
            (frame.key, getattr(frame, "reason", "").upper().encode() or frame.payload)
            for frame in frames
        ]


@contextlib.asynccontextmanager
async def filled(store: Store | None = None, **slow: Any) -> AsyncIterator[Filled]:
    place = Filled(store)
    await place.put("px", key=["/k"])
    if slow:
        await place.put("slow", **slow)
    yield place
    await place.derived_topics.aclose()


async def test_a_conflated_topic_has_one_message_per_key_and_interval() -> None:
    async with filled(source=PX) as place:
        await place.settled()
        await place.say("px", {"k": 1, "v": 1}, {"k": 2, "v": 1}, {"k": 1, "v": 2})
        await place.settled()
        assert place.journal("slow") == []
        await place.pass_time()
        assert place.journal("slow") == [
            ("[2]", b'{"k": 2, "v": 1}'), ("[1]", b'{"k": 1, "v": 2}')
        ]  # fmt: skip
        await place.pass_time()
        assert len(place.journal("slow")) == 2


@rule("topic-9")
async def test_it_begins_with_what_its_source_has() -> None:
    async with filled() as place:
        await place.say("px", {"k": 1}, {"k": 2})
        entry, _ = await place.put("slow", source=PX)
        await place.settled()
        assert place.sow("slow") == [{"k": 1}, {"k": 2}]
        assert entry.document.document()["key"] == ["/k"]


@rule("topic-8")
async def test_what_leaves_the_source_leaves_the_topic() -> None:
    async with filled(source={**PX, "filter": "/v = 1"}) as place:
        await place.say("px", {"k": 1, "v": 1}, {"k": 2, "v": 2}, {"k": 3, "v": 1})
        await place.pass_time()
        assert place.sow("slow") == [{"k": 1, "v": 1}, {"k": 3, "v": 1}]
        await place.say("px", {"k": 1, "v": 2})
        await place.pass_time()
        assert place.sow("slow") == [{"k": 3, "v": 1}]
        assert place.journal("slow")[-1] == ("[1]", b"MATCH")


async def test_a_view_has_a_record_for_each_group() -> None:
    shape = {"grouping": ["/g"], "projection": ["SUM(/v) AS /total", "COUNT(/k) AS /n"]}
    async with filled(source={**PX, **shape}) as place:
        await place.say("px", {"k": 1, "g": "a", "v": 1}, {"k": 2, "g": "a", "v": 2})
        await place.say("px", {"k": 3, "g": "b", "v": 5})
        await place.pass_time()
        assert place.sow("slow") == [
            {"g": "a", "total": 3, "n": 2}, {"g": "b", "total": 5, "n": 1}
        ]  # fmt: skip
        assert [frame.key for frame in place.live("slow")] == ['["a"]', '["b"]']
        await place.say("px", {"k": 3, "g": "a", "v": 5})
        await place.pass_time()
        assert place.sow("slow") == [{"g": "a", "total": 8, "n": 3}]


@rule("topic-8")
async def test_a_source_without_a_key_is_conflated_by_the_topics_own() -> None:
    """With a null where a message has no such field."""
    async with filled() as place:
        await place.put("log")
        await place.say("log", {"k": 0})
        await place.put("slow", source={"topic": "log", "interval": "1s"}, key=["/k"])
        await place.settled()
        await place.say("log", {"k": 1, "v": 1}, {"k": 1, "v": 2}, 7)
        await place.pass_time()
        assert [(frame.key, frame.payload) for frame in place.live("slow")] == [
            ("[1]", b'{"k": 1, "v": 2}'), ("[null]", b"7")
        ]  # fmt: skip


@rule("topic-9")
@pytest.mark.parametrize("retain", [False, True])
async def test_a_source_without_a_key_that_begins_again_takes_nothing_away(*, retain: bool) -> None:
    async with filled() as place:
        log, _ = await place.put("log", retain=retain)
        await place.put("slow", source={"topic": "log", "interval": "1s"}, key=["/k"])
        await place.settled()
        await place.say("log", {"k": 1})
        await place.pass_time()
        journal = place.driver.engine.topic("log").journal.after(0)
        former = {log.record.epoch: 1}
        kept = RestoredTopic(1, journal if retain else (), journal=journal, former=former)
        place.catalog.renew(TopicRecord("log", log.document, "e2"), kept)
        await place.pass_time()
        await place.say("log", {"k": 2})
        await place.pass_time()
        assert place.journal("slow") == [("[1]", b'{"k": 1}'), ("[2]", b'{"k": 2}')]


@rule("topic-9")
async def test_where_too_many_keys_wait_it_lacks_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.app.topics.derived.RETRY_S", 0)
    async with filled() as place:
        await place.put("log")
        await place.put("slow", source={"topic": "log", "interval": "1s"}, key=["/k"])
        await place.settled()
        monkeypatch.setattr(place.driver.engine._registry, "_keys_max", 11_000)
        await place.say("log", *({"k": number} for number in range(12_000)))
        await place.settled()
        await place.say("log", {"k": "a"})
        await place.pass_time()
        keys = [record_key for record_key, _ in place.journal("slow")]
        assert keys == [*(f"[{number}]" for number in range(12_000)), '["a"]']


DELETED = RemovalReason.DELETED
LOG = {"topic": "log", "interval": "1s"}


@contextlib.asynccontextmanager
async def filled_no_more(**log: Any) -> AsyncIterator[Filled]:
    """A place with a topic that has the first message of its source, and is not filled now."""
    async with filled() as place:
        await place.put("log", **log)
        await place.put("slow", source=LOG, key=["/k"])
        await place.say("log", {"k": 1})
        await place.pass_time()
        await place.derived_topics.aclose()
        yield place


@rule("topic-9")
async def test_what_comes_while_nobody_fills_it_comes_later() -> None:
    async with filled() as place:
        await place.put("log")
        await place.put("slow", source=LOG, key=["/k"])
        await place.say("log", {"k": 1, "v": 1})
        await place.pass_time()
        await place.say("log", {"k": 1, "v": 2}, {"k": 2, "v": 1})
        await place.derived_topics.aclose()
        await place.say("log", {"k": 3, "v": 1}, {"k": 2, "v": 2})
        place.catalog.start_filling()
        await place.pass_time()
        await place.say("log", {"k": 1, "v": 3})
        await place.pass_time()
        assert place.journal("slow") == [
            ("[1]", b'{"k": 1, "v": 1}'),
            ("[1]", b'{"k": 1, "v": 2}'),
            ("[3]", b'{"k": 3, "v": 1}'),
            ("[2]", b'{"k": 2, "v": 2}'),
            ("[1]", b'{"k": 1, "v": 3}'),
        ]


@rule("topic-9")
async def test_a_topic_without_records_is_told_each_message_once() -> None:
    async with filled() as place:
        await place.say("px", {"k": 1, "v": 1}, {"k": 2, "v": 1})
        await place.put("slow", source=PX, retain=False)
        await place.settled()
        for number in range(2):
            await place.derived_topics.aclose()
            await place.say("px", {"k": 3, "v": number})
            place.catalog.start_filling()
            await place.pass_time()
        assert place.journal("slow") == [
            ("[1]", b'{"k": 1, "v": 1}'),
            ("[2]", b'{"k": 2, "v": 1}'),
            ("[3]", b'{"k": 3, "v": 0}'),
            ("[3]", b'{"k": 3, "v": 1}'),
        ]


@rule("topic-9")
async def test_a_topic_without_records_is_told_those_of_its_source_once_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.app.topics.derived.TAKEN_BYTES_AT_ONCE", 1)
    async with filled() as place:
        await place.say("px", *({"k": number} for number in range(3)))
        await place.put("slow", source=PX, retain=False)
        for _ in range(2):
            await place.settled()
            await place.derived_topics.aclose()
            place.catalog.start_filling()
        await place.settled()
        assert [record_key for record_key, _ in place.journal("slow")] == ["[0]", "[1]", "[2]"]


@rule("topic-8", "topic-9")
async def test_a_topic_without_records_is_told_values_and_no_removals() -> None:
    """Nobody holds a record that could be removed."""
    async with filled(source={**PX, "filter": "/v > 0"}, retain=False) as place:
        await place.settled()
        await place.say("px", {"k": 1, "v": 1}, {"k": 2, "v": 1})
        await place.pass_time()
        await place.writer.remove(place.catalog.get("px"), place.live("px")[:1], DELETED)
        await place.say("px", {"k": 2, "v": 0})
        await place.pass_time()
        await place.say("px", {"k": 3, "v": 1})
        await place.pass_time()
        assert [record_key for record_key, _ in place.journal("slow")] == ["[1]", "[2]", "[3]"]


@rule("topic-9")
async def test_a_view_without_records_is_told_groups_whenever_it_begins() -> None:
    shape = {"grouping": ["/g"], "projection": ["SUM(/v) AS /total"]}
    async with filled(source={**PX, **shape}, retain=False) as place:
        await place.settled()
        for number in range(1, 3):
            await place.say("px", {"k": number, "g": "a", "v": number})
            await place.pass_time()
            await place.derived_topics.aclose()
            place.catalog.start_filling()
            await place.settled()
        values = [payload for _, payload in place.journal("slow")]
        assert values == [b'{"g":"a","total":%d}' % total for total in (1, 1, 3, 3)]


@rule("topic-9")
async def test_a_source_in_an_unknown_epoch_is_filled_in_from_its_beginning() -> None:
    """As after FLUSHALL: what is there has come since."""
    async with filled_no_more() as place:
        record = place.catalog.get("log").record
        place.catalog.renew(TopicRecord("log", record.document, "e2"), RestoredTopic())
        await place.store.put_topic(TopicRecord("log", record.document, "e2"))
        await place.say("log", {"k": 2})
        place.catalog.start_filling()
        await place.pass_time()
        assert [record_key for record_key, _ in place.journal("slow")] == ["[1]", "[2]"]


@rule("topic-9")
async def test_what_a_write_did_not_take_comes_again_also_the_first_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.app.topics.derived.RETRY_S", 0)
    store = ForgetfulStore()
    async with filled(store) as place:
        await place.put("log")
        await place.put("slow", source=LOG, key=["/k"])
        await place.settled()
        await place.say("log", {"k": 1})
        store.is_out = True
        await place.pass_time()
        await place.pass_time()
        assert place.journal("slow") == [("[1]", b'{"k": 1}')]


@rule("topic-9")
@pytest.mark.parametrize("written_rows_max", [100_000, 3_000])
async def test_a_place_behind_a_flush_comes_with_its_last_row(
    monkeypatch: pytest.MonkeyPatch, written_rows_max: int
) -> None:
    """A leader that ends before that leaves a place from which all of the flush comes."""
    monkeypatch.setattr("tidegate.app.topics.derived.WRITTEN_ROWS_MAX", written_rows_max)
    store = MemoryStore()
    append, writes = store.append, list[tuple[int, str]]()

    async def noted(topic: str, publication: Publication) -> Appended:
        if publication.fill is not None and publication.items:
            place = publication.fill.mark.partition(" ")[0]
            writes.append((len(publication.items), place.rpartition("-")[2]))
        return await append(topic, publication)

    monkeypatch.setattr(store, "append", noted)
    async with filled(store) as place:
        await place.put("log")
        await place.put("slow", source=LOG, key=["/k"])
        await place.settled()
        await place.say("log", *({"k": number} for number in range(12_000)))
        await place.pass_time()
        *pieces, last = writes
        assert last[1] == "12000"
        assert {at for _, at in pieces} == (set() if written_rows_max == 100_000 else {"0"})
        assert sum(count for count, _ in writes) == 12_000


@rule("topic-9")
async def test_rows_of_a_flush_whose_last_ones_came_ahead_are_filled_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("lanes.interval", "lanes.catch_up", "boards.board"):
        monkeypatch.setattr(f"tidegate.conflation.{module}.ROWS_AT_ONCE", 4)
    async with filled() as place:
        await place.put("log")
        await place.put("slow", source=LOG, key=["/k"])
        await place.settled()
        consumer = place.derived_topics._running["slow"]._consumer
        assert consumer is not None
        take, later = consumer.take, [91, 92, 93, 94, 5, 6, 7, 8]

        def publishing_between(bytes_max: int) -> list[Output]:
            outputs = take(bytes_max)
            if outputs and later:
                say_at_once(place, *later)
                later.clear()
            return outputs

        monkeypatch.setattr(
            type(consumer), "take", lambda _, bytes_max: publishing_between(bytes_max)
        )
        say_at_once(place, *range(1, 9))
        await place.pass_time()
        await place.pass_time()
        keys = {record_key for record_key, _ in place.journal("slow")}
        assert keys == {f"[{number}]" for number in (*range(1, 9), *range(91, 95))}
        filled_to = await place.writer.filled(place.catalog.get("slow"))
        assert filled_to.partition(" ")[0].endswith("-16")


def say_at_once(place: Filled, *keys: int) -> None:
    """Publish to the log without waiting for anything."""
    topic = place.driver.engine.topic("log")
    offsets = range(topic.head + 1, topic.head + 1 + len(keys))
    frames = [Frame(at, b'{"k": %d}' % k) for at, k in zip(offsets, keys, strict=True)]
    place.driver.engine.publish("log", frames, place.driver.now())
    place.driver.dispatch()


@rule("topic-9")
async def test_a_topic_that_was_filled_without_places_goes_on_with_the_next_message() -> None:
    async with filled_no_more() as place:
        await place.store.put_topic(place.catalog.get("slow").record, "-")
        place.catalog.start_filling()
        await place.settled()
        await place.say("log", {"k": 2})
        await place.pass_time()
        assert [record_key for record_key, _ in place.journal("slow")] == ["[1]", "[2]"]


@rule("topic-9")
async def test_a_topic_that_is_repaired_begins_with_the_next_message() -> None:
    async with filled() as place:
        await place.put("log")
        await place.say("log", {"k": 1})
        entry, _ = await place.put("slow", key=["/k"])
        unusable = Unusable("slow", b'{"key":["/k"]}', entry.record.epoch, "No such merger.")
        place.catalog.set_aside(unusable)
        await place.put("slow", source=LOG, key=["/k"])
        await place.say("log", {"k": 2})
        await place.pass_time()
        assert [record_key for record_key, _ in place.journal("slow")] == ["[2]"]


@rule("topic-9", "removal-3")
async def test_a_new_topic_with_an_expiration_begins_with_all_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with filled() as place:
        await place.say("px", *({"k": number} for number in range(3_000)))
        later_ms = place.driver.wall_ms() + 61_000
        monkeypatch.setattr(place.driver, "wall_ms", lambda: later_ms)
        await place.put("slow", source=PX, expiration="1m")
        await place.settled()
        assert place.driver.engine.topic("slow").head == 3_000


@rule("topic-9")
async def test_a_place_is_kept_also_where_a_filter_lets_nothing_through(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidegate.app.topics.derived.IDLE_S", 0.01)
    async with filled() as place:
        await place.put("log", history={"messages": 2})
        await place.put("slow", source=LOG | {"filter": "/v > 0"}, key=["/k"])
        await place.settled()
        await place.say("log", *({"k": number, "v": 0} for number in range(5)))
        await asyncio.sleep(0.05)
        await place.derived_topics.aclose()
        await place.say("log", {"k": 5, "v": 1})
        place.catalog.start_filling()
        await place.pass_time()
        assert [record_key for record_key, _ in place.journal("slow")] == ["[5]"]
    assert "lacks messages" not in caplog.text


@rule("topic-16")
async def test_a_gateway_that_does_not_lead_has_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.app.topics.derived.RETRY_S", 0.01)
    async with filled(source=PX) as place:
        place.driver.drop_topic("px")
        await asyncio.sleep(0.05)
        assert place.derived_topics.reasons == {"slow": "its source px is not served here"}
        place.leadership.give_up()
        await asyncio.sleep(0.05)
        assert place.derived_topics.reasons == {}


async def test_a_change_that_is_cancelled_leaves_the_topic_filled() -> None:
    async with filled(source=PX) as place:
        entry = place.catalog.get("slow")
        async with entry.writing:  # the filler waits, and so does its end
            deleting = asyncio.create_task(place.catalog.delete("slow"))
            await place.settled()
            deleting.cancel()
            await place.settled()
        with pytest.raises(asyncio.CancelledError):
            await deleting
        await place.say("px", {"k": 1})
        await place.pass_time()
        assert place.sow("slow") == [{"k": 1}]


@rule("topic-9")
async def test_what_the_journal_of_a_source_has_lost_is_lacking_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with filled_no_more(history={"messages": 2}) as place:
        await place.say("log", *({"k": number} for number in range(2, 6)))
        place.catalog.start_filling()
        await place.pass_time()
        assert [record_key for record_key, _ in place.journal("slow")] == ["[1]", "[4]", "[5]"]
    assert "slow lacks messages" in caplog.text


@rule("topic-9")
async def test_another_source_without_a_key_begins_with_its_next_message() -> None:
    async with filled() as place:
        for name in ("log", "other"):
            await place.put(name)
            await place.say(name, {"k": name})
        await place.put("slow", source=LOG, key=["/k"])
        await place.say("log", {"k": 1})
        await place.pass_time()
        await place.put("slow", source=LOG | {"topic": "other"}, key=["/k"])
        await place.say("other", {"k": 2})
        await place.pass_time()
        assert [record_key for record_key, _ in place.journal("slow")] == ["[1]", "[2]"]


async def test_they_chain() -> None:
    async with filled(source=PX) as place:
        await place.put("slower", source={"topic": "slow", "interval": "10s"})
        for v in range(3):
            await place.say("px", {"k": 1, "v": v})
            await place.pass_time()
        assert [payload for _, payload in place.journal("slow")] == [
            b'{"k": 1, "v": %d}' % v for v in range(3)
        ]
        assert place.journal("slower") == []
        await place.pass_time(10)
        assert place.journal("slower") == [("[1]", b'{"k": 1, "v": 2}')]


@rule("topic-9")
async def test_another_interval_keeps_what_is_held() -> None:
    async with filled(source={**PX, "interval": "10s"}) as place:
        await place.say("px", {"k": 1, "v": 1})
        await place.pass_time(1)
        await place.put("slow", source=PX)
        await place.pass_time(1)
        assert place.journal("slow") == [("[1]", b'{"k": 1, "v": 1}')]
        await place.say("px", {"k": 1, "v": 2})
        await place.pass_time(1)
        assert len(place.journal("slow")) == 2


async def test_another_filter_brings_in_and_takes_out_nothing_twice() -> None:
    async with filled(source={**PX, "filter": "/v < 3"}) as place:
        await place.say("px", *({"k": v, "v": v} for v in range(1, 5)))
        await place.pass_time()
        await place.put("slow", source={**PX, "filter": "/v > 1"})
        await place.pass_time()
        await place.pass_time()
        assert sorted(record["k"] for record in place.sow("slow")) == [2, 3, 4]
        assert sorted(place.journal("slow")[2:]) == [
            ("[1]", b"MATCH"), ("[3]", b'{"k": 3, "v": 3}'), ("[4]", b'{"k": 4, "v": 4}')
        ]  # fmt: skip


@rule("topic-9")
async def test_another_source_takes_the_place_of_the_first() -> None:
    async with filled(source=PX) as place:
        await place.put("other", key=["/k"])
        await place.say("px", {"k": 1}, {"k": 2})
        await place.say("other", {"k": 2}, {"k": 3})
        await place.pass_time()
        await place.put("slow", source={"topic": "other", "interval": "1s"})
        await place.settled()
        assert place.journal("slow")[2:] == [("[3]", b'{"k": 3}'), ("[1]", b"DELETED")]
        await place.say("px", {"k": 4})
        await place.pass_time()
        assert place.sow("slow") == [{"k": 2}, {"k": 3}]


@rule("topic-9")
async def test_a_topic_that_has_a_source_no_more_stays_as_it_is() -> None:
    async with filled(source=PX) as place:
        await place.say("px", {"k": 1})
        await place.pass_time()
        await place.put("slow", key=["/k"])
        await place.say("px", {"k": 2})
        await place.pass_time()
        assert place.sow("slow") == [{"k": 1}]
        await place.say("slow", {"k": 3})
        assert place.driver.engine.stats().sessions == 0


async def test_a_filled_topic_takes_no_other_message() -> None:
    async with filled(source=PX) as place:
        with pytest.raises(Refused) as refused:
            await place.say("slow", {"k": 1})
        assert refused.value.code == "topic-read-only"


async def test_a_deleted_topic_leaves_its_source() -> None:
    async with filled(source=PX) as place:
        await place.say("px", {"k": 1})
        await place.catalog.delete("slow")
        assert place.driver.engine.stats().sessions == 0
        await place.pass_time()
        await place.catalog.delete("px")


@rule("topic-8")
async def test_exempt_messages_come_through_one_by_one() -> None:
    async with filled(source=PX) as place:
        await place.settled()
        entry = place.catalog.get("px")
        async with entry.writing:
            await place.writer.write(
                entry, [Message(b"%d" % n, "[1]", exempt=True) for n in range(3)]
            )
        await place.pass_time()
        assert [payload for _, payload in place.journal("slow")] == [b"0", b"1", b"2"]
        assert all(frame.exempt for frame in place.driver.engine.topic("slow").journal.after(0))


class ForgetfulStore(MemoryStore):
    """A store that is out for one call."""

    is_out = False

    async def append(self, topic: str, publication: Publication) -> Appended:
        if self.is_out and topic == "slow":
            self.is_out = False
            raise ConnectionError("out")
        return await super().append(topic, publication)


async def test_what_a_store_that_is_out_did_not_take_is_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.app.topics.derived.RETRY_S", 0)
    store = ForgetfulStore()
    async with filled(store, source=PX) as place:
        await place.say("px", {"k": 1})
        store.is_out = True
        await place.pass_time()
        assert not store.is_out
        assert place.journal("slow") == [("[1]", b'{"k": 1}')]


@rule("topic-9", "removal-3")
async def test_what_has_expired_does_not_come_back_where_it_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with filled(source=PX, expiration="1m") as place:
        await place.say("px", {"k": 1, "v": 1}, {"k": 2, "v": 1})
        await place.pass_time()
        entry, said = place.catalog.get("slow"), len(place.journal("slow"))
        [_, kept] = place.live("slow")
        await place.writer.remove(entry, place.live("slow")[:1], RemovalReason.EXPIRED)
        later_ms = place.driver.wall_ms() + 61_000
        monkeypatch.setattr(place.driver, "wall_ms", lambda: later_ms)
        await place.say("px", {"k": 3, "v": 1})
        place.derived_topics.begin_again(entry)
        await place.settled()
        assert place.journal("slow")[said:] == [("[1]", b"EXPIRED"), ("[3]", b'{"k": 3, "v": 1}')]
        assert place.live("slow")[0] == kept
        await place.put("other", source=PX, expiration="1m")
        await place.settled()
        assert [row["k"] for row in place.sow("other")] == [1, 2, 3], "a new topic begins with all"


@rule("topic-9", "cluster-16")
async def test_what_its_source_has_lost_meanwhile_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.app.topics.derived.RETRY_S", 0.01)
    store = ForgetfulStore()
    async with filled(store, source=PX) as place:
        await place.say("px", {"k": 1, "v": 1})
        await place.pass_time()
        await place.say("px", {"k": 1, "v": 2})
        store.is_out = True
        await place.pass_time()
        left = place.driver.engine.topic("px").journal.after(0, until=1)
        record = TopicRecord("px", place.catalog.get("px").document, "e2")
        place.catalog.renew(record, RestoredTopic(1, left, journal=left))
        await asyncio.sleep(0.05)
        await place.settled()
        assert place.journal("slow") == [("[1]", b'{"k": 1, "v": 1}')]


async def test_topics_taken_over_from_a_store_are_filled_whatever_their_order() -> None:
    async with filled(source=PX) as before:
        again = Filled()
        for record in reversed(await before.store.records()):
            assert isinstance(record, TopicRecord)
            await again.store.put_topic(record)
        await again.catalog.open()
        again.catalog.start_filling()
        await again.say("px", {"k": 1})
        await again.pass_time()
        assert again.sow("slow") == [{"k": 1}]
        await again.derived_topics.aclose()


class Refusing(MemoryStore):
    """A store that is out for definitions while it is told to be."""

    is_out = False

    async def put_topic(self, record: TopicRecord, mark: str = "") -> None:
        self._answer()
        await super().put_topic(record, mark)

    async def delete_topic(self, name: str) -> None:
        self._answer()
        await super().delete_topic(name)

    def _answer(self) -> None:
        if self.is_out:
            raise Unavailable("The store is out.")


@rule("topic-11")
@pytest.mark.parametrize(
    "change",
    [
        {"source": {**PX, "filter": "/v > 9"}},
        {"source": {**PX, "topic": "other"}},
        {"source": {**PX, "projection": ["SUM(/v) AS /sum", "/k"], "grouping": ["/k"]}},
        {"source": {**PX, "topic": "plain"}, "key": ["/other"]},
        {"key": ["/k"]},
        None,
    ],
)
async def test_a_change_that_is_not_stored_leaves_the_topic_filled_as_it_was(
    change: dict[str, Any] | None,
) -> None:
    store = Refusing()
    async with filled(store, source=PX) as place:
        await place.put("other", key=["/k"])
        await place.put("plain")
        before = place.catalog.get("slow").document
        store.is_out = True
        changing = place.put("slow", **change) if change else place.catalog.delete("slow")
        with pytest.raises(Refused):
            await changing
        store.is_out = False
        assert place.catalog.get("slow").document == before
        await place.say("px", {"k": 1, "v": 1})
        await place.pass_time()
        assert place.sow("slow") == [{"k": 1, "v": 1}]


@rule("topic-11")
async def test_a_source_that_cannot_be_asked_is_refused_and_nothing_else_changes() -> None:
    async with filled(source=PX) as place:
        wrong = {**PX, "projection": ["SUM(/v) AS /sum", "/k"], "grouping": ["/k"], "filter": "/v"}
        for more in ({"source": {**PX, "topic": "none"}}, {"source": wrong, "key": ["/other"]}):
            with pytest.raises(Refused):
                await place.put("slow", description="other", **more)
        await place.say("px", {"k": 1, "v": 1})
        await place.pass_time()
        assert place.sow("slow") == [{"k": 1, "v": 1}]
        assert place.catalog.get("slow").document.description == ""
