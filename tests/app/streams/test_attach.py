"""Attaching: how a reader resumes that has seen a part of a session, or nothing of it."""

from __future__ import annotations

import pytest

from tests.support.rooms import number_in, room
from tests.support.rules import rule
from tidegate.app.names import TopicPattern
from tidegate.app.stores.store import TopicRecord
from tidegate.conflation.errors import LimitReached
from tidegate.conflation.frame import RestoredTopic
from tidegate.conflation.outputs import CloseReason


@rule("session-1", "session-2", "session-3")
async def test_the_first_reader_begins_and_each_further_one_goes_on() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, options="conflation=1h")
        here.ask(session, command="subscribe")
        await here.say({"k": 1})
        reader, hello = here.read(session)
        assert here.told(reader) == [
            "group_begin s1", 's1: {"k":1}', "group_end s1", "resumed s2 replay", 's2: {"k":1}'
        ]  # fmt: skip
        reader.close()
        await here.say({"k": 2})
        reader, _ = here.read(session, session.cursor.number if session.cursor else None)
        assert here.told(reader) == [
            "resumed s1 changes", 's1: {"k":2}', "resumed s2 replay", 's2: {"k":2}'
        ]  # fmt: skip
        reader.close()
        number = number_in(hello)
        reader, _ = here.read(session, number)
        assert here.told(reader) == [
            "resumed s1 snapshot", "group_begin s1", 's1: {"k":1} {"k":2}', "group_end s1",
            "resumed s2 replay", 's2: {"k":1} {"k":2}',
        ]  # fmt: skip


@rule("session-2")
async def test_an_unknown_number_has_everything_sent_anew() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, options="conflation=1h")
        await here.say({"k": 1})
        reader, _ = here.read(session, 99)
        told = here.told(reader)
        assert told == ["resumed s1 snapshot", "group_begin s1", 's1: {"k":1}', "group_end s1"]


async def test_a_subscription_that_was_added_later_begins_for_an_earlier_number() -> None:
    async with room() as here:
        await here.topic("px")
        await here.topic("fx")
        session = here.kept()
        here.ask(session, "px", command="subscribe")
        reader, _ = here.read(session)
        here.take(reader)
        assert session.cursor is not None
        number = session.cursor.number
        here.ask(session, "fx", command="subscribe")
        await here.say({"k": 1}, topic="fx")
        assert here.told(reader) == ["subscribed s2", 's2: {"k":1}']
        reader.close()
        reader, _ = here.read(session, number)
        assert here.told(reader) == ["resumed s1 replay", "resumed s2 replay", 's2: {"k":1}']


async def test_a_topic_deleted_while_nobody_read_has_gone_also_where_it_is_there_again() -> None:
    """CONTRACT 2: subscriptions end with REMOVED."""
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, options="conflation=1h")
        reader, _ = here.read(session)
        here.take(reader)
        reader.close()
        await here.gateway.catalog.delete("px")
        await here.topic()
        await here.say({"k": 5})
        assert session.cursor is not None
        reader, _ = here.read(session, session.cursor.number)
        assert here.told(reader) == ["unsubscribed s1 REMOVED"]


@rule("session-5")
async def test_a_topic_that_has_ended_unseen_and_begun_again_is_told_of_in_this_order() -> None:
    async with room() as here:
        await here.topic("px.a")
        session = here.kept()
        here.ask(session, TopicPattern.parse("px.*"), options="conflation=1h")
        reader, hello = here.read(session)
        here.take(reader)
        await here.gateway.catalog.delete("px.a")
        await here.topic("px.a")
        reader.close()
        reader, hello = here.read(session, number_in(hello))
        assert hello["subscriptions"] == []
        assert here.told(reader)[:2] == ["unsubscribed s1 REMOVED", "subscribed s1"]
        reader, hello = here.read(session, session.cursor.number if session.cursor else None)
        assert [each["topic"] for each in hello["subscriptions"]] == ["px.a"]
        assert not any("subscribed" in each for each in here.told(reader))


async def test_a_topic_that_got_another_key_while_nobody_read_has_gone() -> None:
    """As for a reader that is there, and at every other gateway."""
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, options="conflation=1h")
        reader, _ = here.read(session)
        here.take(reader)
        reader.close()
        await here.topic(key=("/other",))
        assert session.cursor is not None
        reader, _ = here.read(session, session.cursor.number)
        assert here.told(reader) == ["unsubscribed s1 REMOVED"]


async def test_a_topic_made_anew_that_the_request_does_not_fit_has_gone() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, options="conflation=1h")
        await here.gateway.catalog.delete("px")
        await here.topic(key=())
        reader, hello = here.read(session)
        assert hello["subscriptions"] == []
        assert here.told(reader) == ["unsubscribed s1 REMOVED"]


async def test_a_pause_outlives_the_reader() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, command="subscribe")
        session.change("s1", session.asked["s1"].request, paused=True)
        await here.say({"k": 1})
        reader, hello = here.read(session)
        assert hello["subscriptions"][0]["options"].endswith("pause")
        assert here.told(reader) == []
        session.change("s1", session.asked["s1"].request, paused=False)
        assert here.told(reader) == ["resumed s1 replay", 's1: {"k":1}']


@rule("session-4")
@pytest.mark.parametrize(("policy", "conflated", "told"), [
    ("conflate", True, ["resumed s1 changes", 's1: {"k":1,"v":4}']),
    ("always", True, ["resumed s1 changes", 's1: {"k":1,"v":4}']),
    ("conflate", False, ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]),
    ("off", True, ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]),
    ("unsubscribe", True, ["unsubscribed s1 BACK_PRESSURE"]),
])  # fmt: skip
async def test_policies_apply_to_what_was_missed(
    policy: str, conflated: bool, told: list[str]
) -> None:
    async with room(queue_messages_max=3) as here:
        await here.topic(conflation=policy)
        session = here.kept(conflated=conflated)
        here.ask(session, command="subscribe")
        await here.say(*[{"k": 1, "v": v} for v in range(1, 5)])
        reader, _ = here.read(session)
        assert here.told(reader) == told


@rule("session-4")
async def test_who_was_told_of_a_full_queue_gets_what_the_journal_has() -> None:
    async with room(queue_messages_max=3) as here:
        await here.topic(conflation="off")
        session = here.kept()
        here.ask(session, command="subscribe")
        await here.say(*[{"k": 1} for _ in range(4)])
        reader, _ = here.read(session)
        assert here.told(reader) == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]
        reader.close()
        assert session.closed is CloseReason.QUEUE_LIMIT
        reader, _ = here.read(session)
        assert here.told(reader)[0] == "resumed s1 replay"
        assert session.closed is None


@rule("resume-10")
async def test_a_replay_whose_beginning_is_gone_ends() -> None:
    async with room() as here:
        await here.topic(history={"messages": 2})
        await here.say({"k": 1}, {"k": 2})
        session = here.kept()
        first = here.gateway.driver.engine.topic("px").bookmark(1)
        here.ask(session, options=f"bookmark={first},bookmark_not_found=fail")
        await here.say({"k": 3}, {"k": 4})
        reader, _ = here.read(session)
        assert here.told(reader) == ["unsubscribed s1 BOOKMARK_EXPIRED"]
        assert session.asked == {}


@rule("resume-10")
async def test_who_comes_back_too_late_to_a_bookmark_subscription_loses_it() -> None:
    """The other subscriptions of the session go on."""
    async with room() as here:
        await here.topic(history={"messages": 1})
        session = here.kept()
        here.ask(session, options="bookmark=epoch,bookmark_not_found=fail")
        here.ask(session, command="subscribe")
        reader, _ = here.read(session)
        await here.say({"k": 1})
        here.take(reader)
        seen = session.cursor.number if session.cursor else 0
        reader.close()
        await here.say({"k": 2}, {"k": 3})
        reader, _ = here.read(session, seen)
        told = here.told(reader)
        assert "unsubscribed s1 BOOKMARK_EXPIRED" in told
        assert "resumed s2 snapshot" in told


@rule("resume-10")
@pytest.mark.parametrize(
    ("is_continued", "told"),
    [(True, "resumed s1 replay"), (False, "unsubscribed s1 BOOKMARK_EXPIRED")],
)
async def test_a_bookmark_subscription_goes_on_in_an_epoch_that_continues_its_own(
    *, is_continued: bool, told: str
) -> None:
    """Also if its beginning is gone by then."""
    async with room() as here:
        await here.topic(history={"messages": 2})
        await here.say({"k": 1}, {"k": 2})
        topic, session = here.gateway.driver.engine.topic("px"), here.kept()
        here.ask(session, options=f"bookmark={topic.bookmark(1)},bookmark_not_found=fail")
        reader, _ = here.read(session)
        here.take(reader)
        await here.say({"k": 3}, {"k": 4})
        here.take(reader)
        reader.close()
        seen = session.cursor.number if session.cursor else 0
        renewed = TopicRecord("px", here.gateway.catalog.get("px").document, "e2")
        kept = RestoredTopic(former={topic.epoch: 4} if is_continued else {})
        here.gateway.catalog.renew(renewed, kept)
        reader, _ = here.read(session, seen)
        assert here.told(reader)[0] == told


@rule("topic-2", "session-1")
async def test_what_was_granted_stays_in_an_epoch_that_continues_its_own() -> None:
    async with room() as here:
        await here.topic(options="conflation=1h")
        session = here.kept()
        here.ask(session)
        await here.topic(options="conflation=2h")
        entry = here.gateway.catalog.get("px")
        kept = RestoredTopic(former={entry.record.epoch: 0})
        here.gateway.catalog.renew(TopicRecord("px", entry.document, "e2"), kept)
        _, hello = here.read(session)
        assert "conflation=1h" in hello["subscriptions"][0]["options"]


@rule("session-5", "cluster-16")
async def test_a_topic_that_comes_back_is_sent_again_to_who_was_told_of_its_end() -> None:
    """A failover may lose a deletion, which a reader has been told of at its return."""
    async with room() as here:
        await here.topic()
        await here.say({"k": 1})
        session, catalog = here.kept(), here.gateway.catalog
        here.ask(session, TopicPattern.parse("*"))
        reader, _ = here.read(session)
        here.take(reader)
        reader.close()
        seen = session.cursor.number if session.cursor else 0
        entry, topic = catalog.get("px"), here.gateway.driver.engine.topic("px")
        kept = RestoredTopic(1, topic.journal.after(0), journal=topic.journal.after(0))
        catalog.drop(entry)
        reader, _ = here.read(session, seen)
        assert "unsubscribed s1 REMOVED" in here.told(reader)
        reader.close()
        seen = session.cursor.number if session.cursor else 0
        catalog.restore(entry.record, kept)
        reader, hello = here.read(session, seen)
        assert [each["topic"] for each in hello["subscriptions"]] == ["px"]
        assert 's1: {"k":1}' in here.told(reader)


async def test_a_replay_that_broke_off_before_its_first_row_is_begun_again() -> None:
    async with room() as here:
        await here.topic(key=())
        await here.say(1, 2)
        session = here.kept()
        here.ask(session, options="bookmark=epoch")
        for number in (None, 0, None):
            reader, hello = here.read(session, number)
            reader.close()
            reader, _ = here.read(session, number_in(hello))
            assert here.told(reader)[:1] == ["resumed s1 replay"]
            reader.close()


@rule("session-3")
async def test_a_reader_that_is_back_with_less_than_was_acknowledged_says_what_it_has() -> None:
    async with room() as here:
        await here.topic()
        session = here.kept()
        here.ask(session, command="subscribe")
        reader, hello = here.read(session)
        await here.say({"k": 1})
        here.take(reader)
        reader.confirm()
        reader.close()
        reader, _ = here.read(session, number_in(hello))
        reader.close()
        reader, _ = here.read(session)
        assert here.told(reader) == ["resumed s1 replay", 's1: {"k":1}']


async def test_a_gateway_that_is_full_keeps_the_session_waiting() -> None:
    async with room(sessions_max=1) as here:
        session = here.kept()
        here.gateway.driver.open("another")
        with pytest.raises(LimitReached):
            here.read(session)
        assert session.reader is None
        here.gateway.driver.close("another")
        assert here.read(session)[0] is session.reader
