"""Cohorts: equal members that have received the same rows take together."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.support.manual_driver import PLENTY, ManualDriver, described, sizes
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.sessions.session import QueueLimits

THREE = ("a", "b", "c")


def gathered(
    driver: ManualDriver, options: str = "conflation=100ms", sessions: Iterable[str] = THREE
) -> Cohort:
    """The cohort of new sessions with equal subscriptions."""
    cohorts = set()
    for session in sessions:
        driver.subscribe(options, session=session)
        driver.take(session)
        cohorts.add(driver.engine.enter_cohort(session, "kind"))
    [cohort] = cohorts
    assert cohort is not None
    driver.announcements()
    return cohort


def rows_of(driver: ManualDriver, cohort: Cohort, bytes_max: int = PLENTY) -> list[str]:
    """All that a cohort can take."""
    found = []
    while (rows := driver.engine.take_together(cohort, bytes_max)) is not None:
        found.append(rows)
    return described(found)


@pytest.fixture
def driver() -> ManualDriver:
    driver = ManualDriver()
    driver.topic()
    return driver


@pytest.mark.parametrize(
    "options", ["conflation=100ms", "conflation=100ms,pace=key", "conflation=100ms,receipt"]
)
def test_a_flush_is_announced_once_and_taken_once(driver: ManualDriver, options: str) -> None:
    cohort = gathered(driver, options)
    driver.publish("a1 b1 a2")
    driver.wait("100ms")
    [announcement] = driver.announcements()
    assert getattr(announcement, "cohort", None) is cohort
    assert rows_of(driver, cohort) == ["b1 a2"]
    assert driver.announcements() == []
    for session in THREE:
        [row] = driver.engine.session_stats(session).subscriptions
        assert (row.matched, row.delivered, row.conflated, row.waiting) == (3, 2, 1, 0)


def test_a_cohort_that_has_taken_everything_hears_of_the_next_flush(driver: ManualDriver) -> None:
    cohort = gathered(driver)
    assert cohort.becomes_idle()
    driver.publish("a1")
    driver.wait("100ms")
    assert not cohort.becomes_idle()
    rows_of(driver, cohort)
    driver.announcements()
    assert cohort.becomes_idle()
    driver.publish("a2")
    driver.wait("100ms")
    [announcement] = driver.announcements()
    assert getattr(announcement, "cohort", None) is cohort


def test_one_that_is_behind_gets_the_newest_values_once_for_all(driver: ManualDriver) -> None:
    cohort = gathered(driver)
    driver.publish("a1 b1")
    driver.wait("100ms")
    driver.publish("a2")
    driver.wait("100ms")
    assert rows_of(driver, cohort) == ["b1 a2"]


def test_one_that_is_behind_takes_in_pieces(driver: ManualDriver) -> None:
    cohort = gathered(driver)
    for number in (1, 2):
        driver.publish(f"a{number} b{number} c{number}")
        driver.wait("100ms")
    assert rows_of(driver, cohort, sizes(["a1", "b1"])) == ["a2 b2", "c2"]


def test_who_leaves_midway_goes_on_from_there(driver: ManualDriver) -> None:
    cohort = gathered(driver)
    for number in (1, 2):
        driver.publish(f"a{number} b{number} c{number}")
        driver.wait("100ms")
    bytes_max = sizes(["a1", "b1"])
    rows = driver.engine.take_together(cohort, bytes_max)
    assert rows is not None
    driver.engine.leave_cohort("b")
    assert driver.announced()[-1:] == ["b"]
    driver.publish("a3")
    assert driver.received("b") == ["c2"]
    assert rows_of(driver, cohort, bytes_max) == ["c2"]
    assert list(cohort.members) == ["a", "c"]
    driver.wait("100ms")
    assert driver.received("b") == ["a3"]
    assert rows_of(driver, cohort) == ["a3"]


def test_what_concerns_one_session_lets_it_leave(driver: ManualDriver) -> None:
    engine = driver.engine
    cohort = gathered(driver, sessions="abcdefg")
    names = {session: member.name for session, member in cohort.members.items()}
    engine.note_unsent("a", 5)
    engine.set_session_limits("b", QueueLimits(7, 700), conflated=True)
    driver.change(names["c"], "conflation=200ms", session="c")
    driver.subscribe("conflation=50ms", session="d")
    engine.close_session("e")
    assert list(cohort.members) == ["f", "g"]
    assert set("abcd") <= set(driver.announced())
    engine.drop_topic("px")
    assert cohort.members == {}


def test_looking_lets_nobody_leave(driver: ManualDriver) -> None:
    cohort = gathered(driver)
    driver.publish("a1")
    driver.wait("100ms")
    engine = driver.engine
    engine.session_stats("a")
    assert engine.session("b").caught_up() == []
    engine.stats()
    engine.topic_stats("px")
    engine.over_half_full("px")
    assert list(cohort.members) == list(THREE)
    assert rows_of(driver, cohort) == ["a1"]
    assert len(engine.session("b").caught_up()) == 1


def test_kinds_take_apart(driver: ManualDriver) -> None:
    cohort = gathered(driver)
    driver.subscribe("conflation=100ms", session="d")
    driver.take("d")
    other = driver.engine.enter_cohort("d", "other kind")
    assert other is not None
    assert other is not cohort
    driver.publish("a1")
    driver.wait("100ms")
    assert rows_of(driver, other) == ["a1"]
    assert rows_of(driver, cohort) == ["a1"]


def test_one_that_has_had_more_waits_until_the_others_have(driver: ManualDriver) -> None:
    cohort = gathered(driver)
    driver.subscribe("conflation=100ms", session="d")
    driver.publish("a1")
    driver.wait("100ms")
    assert driver.received("d") == ["a1"]
    assert driver.engine.enter_cohort("d", "kind") is None
    assert rows_of(driver, cohort) == ["a1"]
    assert driver.engine.enter_cohort("d", "kind") is cohort


@pytest.mark.parametrize("options", ["conflation=100ms,receipt", "conflation=100ms,pace=key"])
def test_who_joins_while_something_is_held_has_a_flush_of_its_own(
    driver: ManualDriver, options: str
) -> None:
    cohort = gathered(driver, options, "a")
    driver.publish("a1")
    driver.subscribe(options, session="b", command="sow_and_subscribe")
    driver.take("b")
    assert driver.engine.enter_cohort("b", "kind") is None
    driver.publish("a2")
    driver.wait("200ms")
    assert rows_of(driver, cohort) == ["a2"]
    driver.take("b")
    assert driver.engine.enter_cohort("b", "kind") is cohort


def test_an_answer_that_is_too_large_and_cannot_be_cut_ends_the_cohort(
    driver: ManualDriver,
) -> None:
    cohort = gathered(driver, "conflation=100ms,receipt")
    driver.publish("a1 b1 c1")
    driver.wait("100ms")
    assert rows_of(driver, cohort, sizes(["a1", "b1"])) == []
    assert cohort.members == {}
    for session in THREE:
        assert driver.received(session, sizes(["a1", "b1"])) == ["a1 b1", "c1"]


def test_a_session_is_unlike_others_while_it_has_something_of_its_own(
    driver: ManualDriver,
) -> None:
    engine = driver.engine
    driver.publish("a1")
    driver.subscribe("conflation=100ms", command="sow_and_subscribe")
    assert engine.enter_cohort("s", "kind") is None, "a snapshot is on its way"
    driver.take()
    assert engine.enter_cohort("s", "kind") is not None
    driver.subscribe("conflation=100ms")
    driver.take()
    assert engine.enter_cohort("s", "kind") is None, "it has two subscriptions"
    driver.subscribe("conflation=100ms,oof", session="t")
    driver.take("t")
    assert engine.enter_cohort("t", "kind") is None, "it was not sent all keys that may be removed"
    assert engine.enter_cohort("nobody", "kind") is None
