"""A session: its subscriptions take turns; their beginnings and ends are sent before rows."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.manual_driver import ManualDriver, described
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.conflation.definition import Priority
from tidegate.conflation.sessions import session as session_module
from tidegate.conflation.sessions.session import QueueLimits, Subscribers
from tidegate.conflation.sessions.subscriber import Subscriber, SubscriberId
from tidegate.conflation.topics.topic import Topic


def two_subscriptions() -> ManualDriver:
    driver = ManualDriver()
    driver.topic()
    driver.topic("other")
    driver.subscribe("conflation=1s")
    driver.subscribe("conflation=1s", topic="other")
    return driver


def test_subscriptions_take_turns_so_that_none_starves() -> None:
    driver = two_subscriptions()
    driver.publish("a1 b1")
    driver.publish("x1 y1", topic="other")
    driver.wait("1s")
    pieces = [described(driver.take_once(1)) for _ in range(4)]
    assert pieces == [["a1"], ["x1"], ["b1"], ["y1"]]


def test_room_is_shared_by_all_subscriptions() -> None:
    driver = two_subscriptions()
    driver.publish("a1")
    driver.publish("x1", topic="other")
    driver.wait("1s")
    assert described(driver.take_once(1_000)) == ["a1", "x1"]


@rule("account-2")
def test_the_end_of_a_subscription_is_sent_and_drops_what_it_held() -> None:
    driver = two_subscriptions()
    driver.publish("a1")
    driver.engine.unsubscribe("s", "sub1")
    driver.wait("1s")
    assert driver.received() == ["unsubscribed from px: REQUESTED"]
    assert driver.engine.topic_stats("px").dropped == 1


def test_a_subscriber_is_announced_before_its_rows_and_after_the_end_of_the_one_before() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1")
    driver.engine.open_session("s", QueueLimits(10, 1_000), lasts=True)
    wanted = driver.request("conflation=1s", command="sow_and_subscribe")
    driver.engine.subscribe("s", "sub", wanted, driver.now, announced=True)
    story = ["subscribed to px", "group of 1", "snapshot: a1", "group ends at e1-1"]
    assert driver.received() == story
    driver.engine.drop_topic("px")
    driver.topic(epoch="e2")
    driver.engine.subscribe("s", "sub", wanted, driver.now, announced=True)
    assert driver.received() == [
        "unsubscribed from px: REMOVED", "subscribed to px", "group of 0", "group ends at e2-0"
    ]  # fmt: skip


def test_a_client_that_has_everything_gets_its_position() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s", wanted="/v > 5")
    driver.subscribe("conflation=1s", command="sow_and_subscribe")

    def places() -> dict[str, str]:
        return {name: str(place) for (name, _), place in driver.engine.session("s").caught_up()}

    assert places() == {"sub1": "e1-0"}  # the other's snapshot has not been taken
    driver.received()
    driver.publish("a1 b2")
    assert places() == {"sub1": "e1-2"}, "hidden by the filter, or held until the flush"
    driver.publish("a9")
    driver.wait("1s")
    assert places() == {}
    driver.received()
    assert places() == {"sub1": "e1-3", "sub2": "e1-3"}


def test_what_a_move_still_owes_is_on_the_way() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=5s")
    driver.publish("a1")
    driver.change(name, "conflation=10s")
    assert driver.engine.session("s").caught_up() == []
    driver.wait("5s")
    assert driver.received() == ["a1"]
    assert len(driver.engine.session("s").caught_up()) == 1


def test_two_subscriptions_of_one_topic_are_two_deliveries() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s")
    driver.subscribe("conflation=1s")
    driver.publish("a1")
    driver.wait("1s")
    assert driver.received() == ["a1", "a1"]


@rule("queue-2", "queue-1")
def test_what_is_queued_counts_messages_and_bytes_of_every_list() -> None:
    """Intervals queue nothing."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=none")
    driver.subscribe("conflation=1s")
    driver.publish("a1 a2")
    stats = driver.engine.session_stats("s")
    assert (stats.queued_messages, stats.queued_bytes) == (2, 2 * len(b'{"k":"a","v":1}'))


@rule("queue-3")
def test_topics_of_a_higher_priority_go_first_and_those_of_one_take_turns() -> None:
    driver = ManualDriver()
    for name, priority in (("low", "low"), ("px", "default"), ("q", "default"), ("top", "high")):
        driver.topic(name, priority=Priority(priority))
        driver.subscribe(topic=name)
    for number in (1, 2):
        for name in ("low", "px", "q", "top"):
            driver.publish(f"{name[0]}{number}", topic=name)
        driver.flush()
    assert driver.received(bytes_max=1) == ["t1", "t2", "p1", "q1", "p2", "q2", "l1", "l2"]


def test_control_events_need_no_room() -> None:
    driver = ManualDriver()
    driver.topic(policy="off")
    driver.session(messages_max=1, lasts=True)
    driver.subscribe()
    driver.publish("a1")
    driver.flush()
    for number in range(5):
        name = f"more{number}"
        driver.engine.subscribe(
            "s", name, driver.request("conflation=1s"), driver.now, announced=True
        )
        driver.engine.unsubscribe("s", name)
    assert driver.engine.session_stats("s").queued_messages == 1
    assert len(driver.received()) == 11


VERBS = st.sampled_from(("add", "remove", "pass_turn"))
NAMES = [*product(("s1", "s2", "s3"), ("px", "other"))]


@examples(30)
@given(calls=st.lists(st.tuples(VERBS, st.sampled_from(NAMES))))
def test_subscribers_are_kept_as_a_dict_keeps_them(calls: list[tuple[str, SubscriberId]]) -> None:
    driver = two_subscriptions()
    wanted = next(iter(driver.engine.session("s").subscribers)).member.subscription
    topics: dict[str, Topic] = {name: driver.engine.topic(name) for name in ("px", "other")}
    found, model = Subscribers(), dict[SubscriberId, Subscriber]()
    for verb, (name, topic) in calls:
        if verb == "add":
            model[name, topic] = Subscriber.of("s", name, topics[topic], wanted)
            found.add(model[name, topic])
        elif (name, topic) in model and verb == "remove":
            found.remove(model.pop((name, topic)))
        elif (name, topic) in model:
            found.pass_turn(model[name, topic])
            model[name, topic] = model.pop((name, topic))
        assert [*found] == [*model.values()]
        assert len(found) == len(model)
        assert [found.get(each) for each in NAMES] == [model.get(each) for each in NAMES]


def test_subscribers_may_go_while_they_are_looked_at() -> None:
    driver = two_subscriptions()
    subscribers = driver.engine.session("s").subscribers
    for each in subscribers:
        subscribers.remove(each)
    assert not subscribers


@pytest.mark.parametrize(("bound", "most"), [("SHARED_ROWS", 2), ("SHARED_BYTES", 8)])
def test_a_take_ends_behind_a_subscriber_once_it_has_enough(
    bound: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, bound, most)
    driver = two_subscriptions()
    driver.publish("a1 b1")
    driver.publish("x1 y1", topic="other")
    driver.wait("1s")
    assert [described(driver.take_once(1 << 20)) for _ in range(2)] == [["a1 b1"], ["x1 y1"]]


def test_what_waits_is_what_would_still_be_sent() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1")
    driver.subscribe("conflation=1s", command="sow_and_subscribe")
    subscriber = driver.engine.session("s").only_subscriber
    driver.publish("c1 d1 c2")
    waiting = [subscriber.waiting()]
    driver.take()
    waiting.append(subscriber.waiting())
    driver.wait("1s")
    driver.take()
    waiting.append(subscriber.waiting())
    assert waiting == [2, 2, 0]


def test_a_session_with_rows_of_its_own_is_not_served_with_others() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b1")
    driver.subscribe("conflation=1s", command="sow_and_subscribe")
    session = driver.engine.session("s")
    alike = [session.may_join_cohort]
    driver.take_once(1)
    alike.append(session.may_join_cohort)
    driver.take()
    alike.append(session.may_join_cohort)
    assert alike == [False, False, True]


def test_a_session_that_is_owed_counts_is_not_served_with_others() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.session(messages_max=3)
    driver.subscribe("conflation=none")
    session = driver.engine.session("s")
    alike = [session.may_join_cohort]
    driver.publish("a1 b1 a2 c1")
    driver.flush()
    alike.append(session.may_join_cohort)
    driver.take()
    alike.append(session.may_join_cohort)
    assert alike == [True, False, True]
