"""What was kept of a topic puts it back: resumes, records and journal are as before.

Rules cluster-1 and removal-3 are told here.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.manual_driver import ManualDriver, tokens
from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.conflation.frame import Frame, RestoredTopic, Tombstone
from tidegate.conflation.outputs import RecordsExpired
from tidegate.keys.text.duration import parse_duration

pytestmark = rule("cluster-1", "removal-3")


class Shelf:
    """What a store keeps of a topic: records as of its last look, the journal behind it."""

    def __init__(self, driver: ManualDriver) -> None:
        self._driver = driver
        self._records: dict[str, Frame] = {}
        self.through = self._horizon = self._exempt_through = 0

    def look(self) -> None:
        """A checkpoint: the newest of each key changed since the last one."""
        topic = self._driver.engine.topic("px")
        assert topic.sow is not None
        board = topic.sow.board
        for frame in board.newest(self.through):
            self._records.pop(frame.key, None)
            self._records[frame.key] = frame
        self.through, self._horizon = topic.head, board.horizon
        self._exempt_through = board.exempt_last
        stale = [
            it.key for it in self._records.values() if it.removed and it.offset <= self._horizon
        ]
        for record_key in stale:
            del self._records[record_key]

    def kept(self) -> RestoredTopic:
        """What a start finds."""
        journal = self._driver.engine.topic("px").journal
        return RestoredTopic(
            self._driver.engine.topic("px").head,
            list(self._records.values()),
            self._horizon,
            journal.after(journal.dropped_through),
            journal.dropped_through,
            self._exempt_through,
        )


def restarted(
    kept: RestoredTopic, *, age: str = "1s", key: str = "[/k]", **definition: object
) -> ManualDriver:
    """Another engine, some time after messages of time 0 were published."""
    driver = ManualDriver()
    driver.now = parse_duration("1h")
    driver.topic(key=key, **definition)  # type: ignore[arg-type]  # as `ManualDriver.topic` has them
    driver.engine.restore_topic("px", kept, driver.now, parse_duration(age) // 1_000_000)
    return driver


def sow(driver: ManualDriver) -> str:
    """The state of the driver."""
    found = driver.engine.topic("px").sow
    assert found is not None
    return tokens(found.board.live())


def journal(driver: ManualDriver) -> list[Frame]:
    """Everything that can be replayed."""
    topic = driver.engine.topic("px")
    return topic.since(topic.bookmark(topic.beginning), 1_000)


def resumed(driver: ManualDriver, offset: int, options: str) -> list[str]:
    """What somebody is told who comes back with a bookmark."""
    driver.subscribe(options, resume=f"e1-{offset}", session="back")
    return driver.received("back")


def before() -> tuple[ManualDriver, Shelf]:
    """Keys that came, changed and went, half of it before a checkpoint."""
    driver = ManualDriver()
    driver.topic()
    shelf = Shelf(driver)
    driver.publish("a1 b1 c1 d1")
    driver.remove("c1")
    shelf.look()
    driver.publish("b2 e1")
    driver.remove("d1")
    return driver, shelf


def test_records_journal_and_numbers_are_as_before() -> None:
    driver, shelf = before()
    after = restarted(shelf.kept())
    assert sow(after) == sow(driver) == "a1 b2 e1"
    assert journal(after) == journal(driver)
    assert after.engine.topic("px").head == 8
    after.publish("f1")
    assert sow(after) == "a1 b2 e1 f1"


@pytest.mark.parametrize(
    ("options", "story"),
    [
        ("conflation=1s,oof", ["resumed by changes, gap 5", "-c1 b2 e1 -d1"]),
        ("conflation=1s", ["resumed by changes, gap 5", "b2 e1"]),
        ("conflation=none,oof", ["resumed by replay, gap 5", "-c1 b2 e1 -d1"]),
    ],
)
def test_a_bookmark_of_before_is_continued(options: str, story: list[str]) -> None:
    driver, shelf = before()
    told_before = resumed(driver, 3, options)
    told_after = resumed(restarted(shelf.kept()), 3, options)
    assert told_after == told_before
    assert [line.removeprefix("publish: ") for line in told_after] != []
    assert told_after[0].startswith(story[0].split(",", maxsplit=1)[0])


def test_behind_the_horizon_there_is_a_snapshot() -> None:
    driver, shelf = before()
    sow_feed = driver.engine.topic("px").sow
    assert sow_feed is not None
    sow_feed.board.trim(5)
    shelf.look()
    driver.engine.topic("px").journal.drop_through(6)
    after = restarted(shelf.kept())
    assert resumed(after, 3, "conflation=1s,oof")[0].startswith("resumed by snapshot")
    assert resumed(driver, 3, "conflation=1s,oof")[0].startswith("resumed by snapshot")


@rule("removal-3")
def test_what_was_published_some_time_ago_expires_so_much_earlier() -> None:
    driver = ManualDriver()
    driver.topic(expiration="10s")
    shelf = Shelf(driver)
    driver.publish_documents({"k": "a"})
    shelf.look()
    driver.sleep("4s")
    driver.publish_documents({"k": "b"})
    after = restarted(shelf.kept(), age="6s", expiration="10s")
    due = [after.engine.next_deadline()]
    after.wait("4s")
    assert [event for event in after.announcements() if isinstance(event, RecordsExpired)] == [
        RecordsExpired("px", "e1", 1)
    ]
    due.append(after.engine.next_deadline())
    second = parse_duration("1s")
    assert due == [parse_duration("1h") + 4 * second, parse_duration("1h") + 8 * second]


def test_what_expired_while_nobody_ran_is_due_at_once() -> None:
    driver = ManualDriver()
    driver.topic(expiration="10s")
    shelf = Shelf(driver)
    driver.publish_documents({"k": "a"})
    after = restarted(shelf.kept(), age="1m", expiration="10s")
    after.flush()
    assert RecordsExpired("px", "e1", 1) in after.announcements()


def test_a_topic_without_records_is_its_journal() -> None:
    driver = ManualDriver()
    driver.topic(key="", history=2)
    driver.publish("a1 b1 c1")
    found = driver.engine.topic("px").journal
    kept = RestoredTopic(3, journal=found.after(1), dropped_through=1)
    after = restarted(kept, key="", history=2)
    assert journal(after) == journal(driver)
    assert resumed(after, 2, "conflation=none") == resumed(driver, 2, "conflation=none")
    assert resumed(after, 0, "conflation=none") == resumed(driver, 0, "conflation=none")


def test_a_topic_without_key_keeps_its_newest_message() -> None:
    driver = ManualDriver()
    driver.topic(key="", retains=True)
    shelf = Shelf(driver)
    driver.publish("a1 b1")
    shelf.look()
    assert sow(restarted(shelf.kept(), key="", retains=True)) == "b1"
    driver.remove("b1", key="")
    assert sow(restarted(shelf.kept(), key="", retains=True)) == ""


@rule("cluster-1")
def test_replaced_exempt_messages_are_sent_from_the_journal() -> None:
    """Newest frames know nothing of them, so no answer is taken from these alone."""
    driver = ManualDriver()
    driver.topic()
    shelf = Shelf(driver)
    driver.publish("a1")
    driver.publish("a2", exempt=True)
    driver.publish("a3")
    shelf.look()
    driver.publish("a4")
    after = restarted(shelf.kept())
    assert resumed(after, 1, "conflation=1s")[0].startswith("resumed by replay")
    assert resumed(after, 2, "conflation=1s")[0].startswith("resumed by changes")


@rule("cluster-1")
def test_an_exempt_message_counts_although_an_older_one_was_replaced_after_it() -> None:
    driver = ManualDriver()
    driver.topic()
    shelf = Shelf(driver)
    driver.publish("a1 b1", exempt=True)
    driver.publish("b2 a2")  # in this order: the older exempt message is replaced last
    shelf.look()
    assert resumed(driver, 1, "conflation=1s")[1:] == ["b1 b2 a2"]
    assert resumed(restarted(shelf.kept()), 1, "conflation=1s")[1:] == ["b1 b2 a2"]


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["a", "b", "c"]).map(lambda name: ("say", name)),
        st.sampled_from(["a", "b", "c"]).map(lambda name: ("remove", name)),
        st.just(("look", "")),
        st.just(("trim", "")),
    ),
    max_size=30,
)


@rule("cluster-1")
@examples(30)
@given(STEPS)
@example([("say", "c"), ("look", ""), ("remove", "c"), ("say", "a"), ("say", "a"), ("trim", "")])
def test_whoever_comes_back_holds_what_the_board_holds(steps: list[tuple[str, str]]) -> None:
    """Rule cluster-1, from every position that the board answers for."""
    driver = ManualDriver()
    driver.topic()
    shelf = Shelf(driver)
    states: list[dict[str, bytes]] = [{}]
    for number, (verb, name) in enumerate(steps):
        board = driver.engine.topic("px").sow
        assert board is not None
        match verb:
            case "say":
                driver.publish(f"{name}{number}")
            case "remove":
                driver.remove(f"{name}0")
            case "look":
                shelf.look()
                continue
            case _:
                # As a feed does: no removal is forgotten before a checkpoint has it.
                board.board.trim(min(driver.engine.topic("px").head // 2, shelf.through))
                shelf.look()
                continue
        states.append({frame.key: frame.payload for frame in board.board.live()})
    after = restarted(shelf.kept())
    found = after.engine.topic("px").sow
    assert found is not None
    assert {frame.key: frame.payload for frame in found.board.live()} == states[-1]
    for position in range(found.board.horizon, len(states)):
        held = dict(states[position])
        for _, row in found.board.rows(position, oof=True):
            if isinstance(row, Tombstone):
                held.pop(row.key, None)
            else:
                held[row.key] = row.payload
        assert held == states[-1]
