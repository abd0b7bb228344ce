"""A feed: one board, and the lanes that listen to it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.support.manual_driver import ManualDriver, batches, make_frames, tokens
from tests.support.rules import rule
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.frame import Frame, Tombstone
from tidegate.conflation.lanes.every_message import EveryMessageLane
from tidegate.conflation.lanes.interval import IntervalLane
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.lanes.stateful import StatefulLane
from tidegate.conflation.operators.filter import rows_of
from tidegate.conflation.subscription import Command, FeedId, LaneId, Subscription, Window
from tidegate.conflation.topics.feed import (
    DEFERRED_BYTES_MAX,
    DEFERRED_MAX,
    EXEMPTS_MAX,
    TOMBSTONES_MAX,
    Feed,
)
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.filter import Filter
from tidegate.keys.order import Order
from tidegate.keys.projection import Projection
from tidegate.keys.spec import KeySpec

KEY = KeySpec.parse("[/k]")
SECOND = 1_000_000_000


def make_feed() -> Feed:
    return Feed(FeedId(KEY), KEY, "px")


def test_the_kind_of_lane_follows_from_its_id() -> None:
    feed = make_feed()
    assert isinstance(feed.lane(LaneId(FeedId(KEY))), EveryMessageLane)
    assert isinstance(feed.lane(LaneId(FeedId(KEY), SECOND)), IntervalLane)
    assert isinstance(feed.lane(LaneId(FeedId(KEY), SECOND, "key")), StatefulLane)


def test_equal_ids_share_a_lane() -> None:
    feed = make_feed()
    first = feed.lane(LaneId(FeedId(KEY), SECOND))
    assert feed.lane(LaneId(FeedId(KeySpec.parse("[$.k]")), SECOND)) is first


def test_a_publish_wakes_the_lanes_that_it_arms_and_no_others() -> None:
    feed = make_feed()
    batch = feed.lane(LaneId(FeedId(KEY), SECOND))
    by_key = feed.lane(LaneId(FeedId(KEY), SECOND, "key"))
    assert feed.publish(make_frames("a1"), 0) == [batch, by_key]
    assert feed.publish(make_frames("b1", first=2), 1) == []
    batch.flush(SECOND)
    feed.listen(batch)
    assert feed.publish(make_frames("c1", first=3), SECOND) == [batch]


def test_a_lane_that_is_dropped_hears_nothing() -> None:
    feed = make_feed()
    lane = feed.lane(LaneId(FeedId(KEY), SECOND, "key"))
    feed.drop_lane(lane)
    feed.listen(lane)
    assert feed.publish(make_frames("a1"), 0) == []
    assert lane.deadline is None


def named(key_text: str, sow_text: str, payload: bytes) -> tuple[str, str]:
    """Under which key a message stands on the board, and what its row is called."""
    sow_spec = KeySpec.parse(sow_text) if sow_text else KeySpec()
    key_spec = KeySpec.parse(key_text) if key_text else KeySpec()
    board_key, row = rows_of(key_spec, sow_spec)(Frame(1, payload, '["sow"]' if sow_text else ""))
    return board_key, row.key


@rule("interval-9")
def test_rows_are_named_by_what_their_subscribers_know() -> None:
    payload = b'{"k":"a","g":7.0}'
    assert named("[/k]", "[/k]", payload) == ('["sow"]', '["sow"]')
    assert named("[/g]", "[/k]", payload) == ("[7]", '["sow"]')
    assert named("[/g,/none]", "", payload) == ("[7,null]", "[7,null]")
    assert named("", "", payload) == ("[]", "")


def test_one_board_serves_all_intervals_of_a_key() -> None:
    driver = ManualDriver()
    driver.topic()
    for number, options in enumerate(("conflation=1s", "conflation=2s", "conflation=none")):
        driver.subscribe(options, session=f"s{number}")
    assert len(driver.engine.topic("px").feeds) == 1
    driver.subscribe("conflation=1s,conflation_key=[/v]", session="s9")
    assert len(driver.engine.topic("px").feeds) == 2


def test_a_board_made_late_answers_for_what_follows() -> None:
    topic = Topic("px", Definition(History(9), KEY), "e1")
    topic.publish(make_frames("a1 b1"), 0)
    feed = topic.feed(FeedId(KeySpec.parse("[/v]")))
    topic.publish(make_frames("c1", first=3), 0)
    feed.materialize()
    assert tokens(frame for _, frame in feed.board.rows(2)) == "c1"


def test_a_board_of_another_key_defers_a_bounded_number_of_rows() -> None:
    topic = Topic("px", Definition(History(9), KEY), "e1")
    feed = topic.feed(FeedId(KeySpec.parse("[/v]")))
    for offset in range(1, 2 * DEFERRED_MAX):
        topic.publish([Frame(offset, b'{"k":1,"v":%d}' % offset, "[1]")], 0)
        assert max(0, offset - DEFERRED_MAX) <= len(feed.board) <= max(0, offset - DEFERRED_MAX + 1)
    assert len(feed.board) < 2 * DEFERRED_MAX - 1, "some are deferred"
    # Large messages would be held up to a thousand times: they become rows at once.
    large = b'{"k":1,"v":0,"text":"%s"}' % (b"x" * DEFERRED_BYTES_MAX)
    topic.publish([Frame(topic.head + 1, large, "[1]")], 0)
    assert feed.is_materialized
    assert len(feed.board) == 2 * DEFERRED_MAX


def test_a_board_forgets_the_older_half_of_many_removals() -> None:
    feed = make_feed()
    put_and_remove(feed, TOMBSTONES_MAX)
    assert feed.board.tombstones == TOMBSTONES_MAX
    put_and_remove(feed, 1)
    assert feed.board.tombstones == TOMBSTONES_MAX // 2
    assert feed.board.horizon == TOMBSTONES_MAX + TOMBSTONES_MAX // 2 + 1, "what is before is gone"


def test_a_board_keeps_the_removals_that_a_lane_has_still_to_send() -> None:
    feed = make_feed()
    member = listening(feed)
    removed = TOMBSTONES_MAX + 1
    put_and_remove(feed, removed)
    assert feed.board.tombstones == removed
    # The bound has risen, or each publish would search in vain for what may go.
    member.position = feed.board.head
    put_and_remove(feed, removed)
    assert feed.board.tombstones == 2 * removed
    put_and_remove(feed, 1)
    assert feed.board.tombstones == removed + 1, "those after the member's position"


@pytest.mark.parametrize(
    "feed_id",
    [FeedId(KEY), FeedId(KEY, Filter.parse("/v > 0")), FeedId(KeySpec.parse("[/v]"))],
    ids=["every message is a row", "some are", "rows are made later"],
)
def test_a_board_forgets_the_older_half_of_many_exempt_messages(feed_id: FeedId) -> None:
    feed = Feed(feed_id, KEY, "px")
    for offset in range(1, EXEMPTS_MAX + 2):
        feed.publish([replace(EXEMPT, offset=offset)], 0)
    feed.materialize()
    assert feed.board.exempts == EXEMPTS_MAX
    feed.publish([replace(EXEMPT, offset=EXEMPTS_MAX + 2)], 0)
    feed.materialize()
    assert feed.board.exempts == EXEMPTS_MAX // 2
    assert feed.board.exempt_through == EXEMPTS_MAX // 2 + 1, "who is behind it is told"


@rule("merge-1")
def test_a_board_keeps_the_exempt_messages_that_a_lane_has_still_to_send() -> None:
    feed = make_feed()
    member = listening(feed)
    publish(feed, [EXEMPT] * (EXEMPTS_MAX + 2))
    assert feed.board.exempts == EXEMPTS_MAX + 1
    # The bound has risen, as that of removals.
    member.position = feed.board.head
    publish(feed, [EXEMPT] * (EXEMPTS_MAX + 1))
    assert feed.board.exempts == 2 * (EXEMPTS_MAX + 1)
    publish(feed, [EXEMPT])
    assert feed.board.exempts == EXEMPTS_MAX + 1


def listening(feed: Feed) -> Member:
    """A member of a lane of the feed, which has all that was published so far."""
    lane_id = LaneId(FeedId(KEY), SECOND, oof=True)
    lane = feed.lane(lane_id)
    lane.join(member := Member("s", "s1", Subscription("px", Command.SUBSCRIBE, lane_id)))
    lane.members[member.place] = member
    return member


EXEMPT = Frame(0, b'{"v":1}', "[1]", exempt=True)


def publish(feed: Feed, frames: list[Frame]) -> None:
    """Publish frames with the offsets that follow."""
    first = feed.board.head + 1
    numbered = [replace(frame, offset=offset) for offset, frame in enumerate(frames, first)]
    feed.publish(numbered, 0)


def put_and_remove(feed: Feed, keys: int) -> None:
    """Publish keys that are new, then their removals."""
    names = [f"[{feed.board.head + each}]" for each in range(keys)]
    publish(feed, [Frame(0, b"1", name) for name in names])
    publish(feed, [Tombstone(0, b"", name) for name in names])


@rule("interval-9")
def test_a_coarser_conflation_key_sends_the_newest_record_of_each() -> None:
    driver = ManualDriver()
    driver.topic(key="[/k,/g]")
    driver.subscribe("conflation=1s,conflation_key=[/k]")
    driver.publish("aX1 aY2 bX3 aX4")
    driver.wait("1s")
    (batch,) = batches(driver.take())
    assert [frame.key for frame in batch.frames] == ['["b","X"]', '["a","X"]']


@rule("merge-2", "merge-3")
def test_a_deadline_that_comes_nearer_is_kept() -> None:
    """A new key of a leading edge goes before one that is held."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe("conflation=1s,edge=leading")
    driver.publish("a1")
    driver.flush()
    driver.publish("a2")
    driver.publish("b1")
    driver.flush()
    assert driver.received() == ["a1 b1"]


GROUPS = FeedId(KEY, shape=Projection.parse("[/k,COUNT(/v) AS /n]", 0, "[/k]", 0))


def test_a_feed_that_stands_as_another_has_the_same_groups_to_make() -> None:
    feed, twin = Feed(GROUPS, KEY, "px"), Feed(GROUPS, KEY, "px")
    feed.publish(make_frames("a1 b1"), 0)
    twin.take_over(feed)
    assert (len(twin.board), twin.deferred_keys(2)) == (0, ['["b"]'])
    feed.materialize()
    assert (len(feed.board), len(twin.board)) == (2, 0)
    assert (feed.materializations, twin.materializations) == (1, 0)
    twin.materialize()
    assert [row for _, row in twin.board.rows(0)] == [row for _, row in feed.board.rows(0)]


@rule("trace-2")
@pytest.mark.parametrize(
    "feed_id",
    [
        FeedId(KEY, Filter.parse("/v > 2")),
        FeedId(KEY, shape=Window(Order.parse("/v DESC"), 2)),
        FeedId(KEY, shape=Projection.parse("[/g,SUM(/v) AS /v]", 0, "[/g]", 0)),
    ],
)
def test_a_copy_of_a_feed_goes_the_same_way_and_leaves_its_original_alone(feed_id: FeedId) -> None:
    """Its operator remembers what is on the board, and what is not there but may come in."""

    def publish(feed: Feed, text: str, first: int) -> None:
        feed.publish(make_frames(text, first), 0)
        feed.materialize()

    feed, same, other, fresh = (Feed(feed_id, KEY, "px") for _ in range(4))
    publish(feed, "aX3 bX5 cY4 dY1", 1)
    publish(fresh, "aX3 bX5 cY4 dY1", 1)
    same.take_over(feed)
    other.take_over(feed)
    publish(other, "bY0 aX0 cX0 dX8", 5)
    for each in (feed, same, fresh):
        publish(each, "bX0 aY9 cY1 eX7", 5)
    expected = fresh.board.rows(0, oof=True)
    assert feed.board.rows(0, oof=True) == expected
    assert same.board.rows(0, oof=True) == expected
    assert other.board.rows(0, oof=True) != expected


def test_groups_are_made_at_once_where_another_feed_does_so() -> None:
    feed = Feed(GROUPS, KEY, "px")
    feed.set_eager(eager=True)
    feed.publish(make_frames("a1"), 0)
    assert (feed.is_eager, len(feed.board), feed.deferred_keys(1)) == (True, 1, [])


def test_a_lane_that_has_run_elsewhere_goes_on() -> None:
    feed = make_feed()
    lane = IntervalLane(LaneId(feed.id, 100), feed.board)
    feed.adopt(lane)
    assert feed.publish(make_frames("a1"), 0) == [lane]
    running = IntervalLane(LaneId(feed.id, 200), feed.board)
    running.deadline = 5
    feed.adopt(running)
    assert feed.publish(make_frames("b1", 2), 0) == []
