"""A change of options keeps what is held."""

import itertools
from dataclasses import replace

import pytest

from tests.support.manual_driver import ManualDriver, batches, counts, described, ids, tokens
from tests.support.rules import rule
from tidegate.conflation.errors import SubscriptionUnknown
from tidegate.conflation.frame import Frame
from tidegate.keys.text.duration import SECOND

SOW = "sow_and_subscribe"
LANES = ("conflation=1s", "conflation=1s,pace=key", "conflation=none", "conflation=60s")


def joined(options: str) -> tuple[ManualDriver, str]:
    """A topic, and one subscription of it: its name."""
    driver = ManualDriver()
    driver.topic()
    return driver, driver.subscribe(options)


def arrivals(driver: ManualDriver) -> list[tuple[float, str]]:
    """Every deadline served: its instant in seconds, and the rows that came."""
    came = []
    while (due := driver.engine.next_deadline()) is not None:
        driver.now = max(due, driver.now)
        driver.flush()
        came += [(driver.now / SECOND, tokens(each.frames)) for each in batches(driver.take())]
    return came


def opened(driver: ManualDriver) -> list[str]:
    """The rows of all that can be taken once no step is left."""
    rows: list[str] = []
    while True:
        while driver.engine.has_openings:
            driver.engine.open_step(driver.now)
        taken = [tokens(each.frames) for each in batches(driver.take())]
        if not taken:
            return rows
        rows += " ".join(taken).split()


def rows_of(driver: ManualDriver) -> list[Frame]:
    return [frame for batch in batches(driver.take()) for frame in batch.frames]


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(LANES, 2)))
def test_a_move_loses_and_repeats_nothing(before: str, after: str) -> None:
    driver, name = joined(before)
    driver.publish("a1 b1")
    driver.sleep("100ms")
    driver.publish("a2")
    driver.sleep("100ms")
    driver.change(name, after)
    driver.sleep("300ms")
    driver.publish("b2 c1")
    rows = [row for _, batch in arrivals(driver) for row in batch.split()]
    assert {row[0]: row for row in rows} == {"a": "a2", "b": "b2", "c": "c1"}
    assert len(rows) == len(set(rows))
    stats = driver.engine.session_stats("s").subscriptions[0]
    assert (stats.matched, stats.waiting) == (5, 0)
    assert stats.delivered == len(rows)
    assert stats.conflated == 5 - len(rows)


def test_what_is_held_goes_at_the_new_interval_if_that_is_earlier() -> None:
    driver, name = joined("conflation=10s")
    driver.publish("a1")
    driver.wait("200ms")
    driver.change(name, "conflation=1s")
    assert arrivals(driver) == [(1.2, "a1")]


def test_what_is_held_goes_at_the_old_deadline_if_that_is_earlier() -> None:
    driver, name = joined("conflation=10s")
    driver.publish("a1")
    driver.wait("9s")
    driver.change(name, "conflation=60s")
    driver.wait("500ms")
    driver.publish("b1")
    assert arrivals(driver) == [(10, "a1 b1")]


def test_a_change_to_every_message_sends_at_once_what_is_held() -> None:
    driver, name = joined("conflation=10s,pace=key")
    driver.publish("a1 b1")
    driver.wait("1s")
    driver.publish("a2")
    driver.wait("1s")
    driver.change(name, "conflation=none")
    assert driver.received() == ["b1 a2"]
    driver.wait("1s")
    driver.publish("a3 a4")
    assert arrivals(driver) == [(3, "a3 a4")]


def test_no_id_is_given_while_older_rows_are_owed() -> None:
    driver, name = joined("conflation=10s")
    driver.subscribe("conflation=1s", session="other")
    driver.wait("8s")
    driver.publish("a1")
    driver.wait("1500ms")
    driver.take("other")
    driver.publish("b1")
    driver.wait("100ms")
    driver.change(name, "conflation=1s")  # a1 and b1 are owed until 10.6
    driver.wait("100ms")
    driver.publish("c1")
    driver.wait("899ms")
    assert driver.take() == []
    driver.wait("1ms")
    rows = driver.take()
    assert (described(rows), ids(rows)) == (["a1 b1 c1"], [3])
    assert arrivals(driver) == []


def test_a_second_move_keeps_what_the_first_carried() -> None:
    driver, name = joined("conflation=10s")
    driver.publish("a1")
    driver.wait("1s")
    driver.change(name, "conflation=5s")
    driver.wait("1s")
    driver.publish("b1")
    driver.wait("1s")
    driver.change(name, "conflation=1s,pace=key")
    assert arrivals(driver) == [(4, "a1 b1")]


def test_the_same_lane_is_no_move() -> None:
    driver, name = joined("conflation=10s")
    driver.publish("a1")
    driver.wait("1s")
    driver.change(name, "conflation=10s,conflation_key=[/k],pace=batch")
    assert arrivals(driver) == [(10, "a1")]


def test_a_subscription_that_is_not_there_cannot_move() -> None:
    driver, _ = joined("conflation=10s")
    with pytest.raises(SubscriptionUnknown):
        driver.change("other", "conflation=1s")


@rule("change-2")
def test_a_new_filter_brings_in_what_the_old_one_hid_and_takes_out_what_it_showed() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b5 c9")
    name = driver.subscribe("oof", wanted="/v > 4", command="sow_and_subscribe")
    driver.take()
    driver.change(name, "oof", wanted="/v < 6", command="sow_and_subscribe")
    assert driver.received() == ["-c9 a1"]
    driver.publish("c2 b8")
    driver.flush()
    assert driver.received() == ["c2 -b8"]


@rule("change-2")
@pytest.mark.parametrize("items_at_once", [None, 2])
def test_a_new_filter_brings_in_records_whatever_the_conflation_key_is(
    items_at_once: int | None,
) -> None:
    driver = ManualDriver(items_at_once=items_at_once)
    driver.topic()
    driver.publish("aX1 bX5 cY2 dY9 eX3")
    by_group = "conflation=1s,conflation_key=[/g]"
    name = driver.subscribe(by_group, wanted="/v > 4", command=SOW)
    assert opened(driver) == ["bX5", "dY9"]
    driver.change(name, by_group, wanted="/v < 4", command=SOW)
    assert opened(driver) == ["aX1", "cY2", "eX3"]
    driver.publish("aX2 cY3 eX0")
    driver.wait("1s")
    assert opened(driver) == ["cY3", "eX0"]
    # aX2 was replaced by a record of its group, so who goes over to records lacks it.
    driver.change(name, "conflation=1s,oof", wanted="/v < 3", command=SOW)
    assert opened(driver) == ["-cY3", "aX2"]


@rule("change-2")
def test_other_fields_are_sent_of_all_records_whatever_the_conflation_key_is() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("aX1 bX5")
    by_group = "conflation=1s,conflation_key=[/g]"
    name = driver.subscribe(by_group, command=SOW)
    driver.take()
    driver.change(name, f"{by_group},select=[-/g]", command=SOW)
    assert driver.received() == ["a1 b5"]
    driver.change(name, "conflation=1s,conflation_key=[/v],select=[-/g]", command=SOW)
    assert driver.received() == []


@rule("change-2")
def test_without_a_snapshot_a_new_filter_is_for_new_messages() -> None:
    """AMPS does not query again."""
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b5")
    name = driver.subscribe("", wanted="/v > 4")
    driver.change(name, "", wanted="/v < 6")
    assert driver.received() == []
    driver.publish("a2 b9")
    driver.flush()
    assert driver.received() == ["a2"]


@rule("change-1")
def test_a_move_sums_up_what_rows_stand_for() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=10s,receipt", counted=True)
    driver.publish("a1 a2 b1")
    driver.change(name, "conflation=1s,receipt", counted=True)
    driver.publish("a3 c1")
    driver.wait("1s")
    assert counts(driver.take()) == [("b1", 1, 3), ("a3", 3, 1), ("c1", 1, 5)]


@rule("change-3")
def test_a_paused_subscription_takes_nothing_and_is_behind_afterwards() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s")
    wanted = driver.request("conflation=1s")
    driver.engine.change("s", name, replace(wanted, paused=True), driver.now)
    driver.publish("a1 b1")
    driver.wait("1s")
    driver.publish("a2")
    driver.wait("1s")
    assert driver.received() == []
    driver.engine.change("s", name, wanted, driver.now)
    assert driver.received() == ["b1 a2"]


@rule("account-1", "change-1")
def test_what_was_held_at_a_move_follows_a_snapshot_that_was_not_taken_yet() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s,pace=key", command="sow_and_subscribe")
    driver.publish("a1")
    driver.change(name, "conflation=100ms", command="sow_and_subscribe")
    driver.wait("2s")
    assert driver.received() == ["group of 0", "group ends at e1-0", "a1"]


@rule("change-1")
def test_until_what_is_held_goes_the_old_options_hold() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=10s,select=[-/v]")
    driver.publish("a1")
    driver.change(name, "conflation=1s")
    driver.publish("b1")
    driver.wait("1s")
    assert [row.payload for row in rows_of(driver)] == [b'{"k":"a"}', b'{"k":"b"}']
    driver.publish("c1")
    driver.wait("1s")
    assert driver.received() == ["c1"]


@rule("change-1")
def test_from_one_plain_interval_to_another_only_a_position_goes_along() -> None:
    """A slow subscriber gets the newest rows here as well, none of them twice."""
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s")
    driver.publish("a1 b1")
    driver.wait("1s")
    driver.publish("a2 c1")
    driver.change(name, "conflation=100ms")
    driver.wait("100ms")
    driver.publish("c2")
    driver.wait("100ms")
    driver.change(name, "conflation=5s")
    assert driver.received() == ["b1 a2 c2"]
    driver.publish("b2")
    driver.wait("5s")
    assert driver.received() == ["b2"]


@rule("interval-10", "change-1")
def test_what_a_move_lets_go_is_taken_as_it_is_by_then() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s")
    driver.publish("a1 b1")
    driver.change(name, "conflation=100ms")
    driver.wait("100ms")
    driver.publish("b2")
    assert driver.received() == ["a1 b2"]
    driver.wait("100ms")
    assert driver.received() == []


@rule("interval-10", "change-1")
@pytest.mark.parametrize(
    ("options", "rest"),
    [
        pytest.param("conflation=100ms", ["b2", "c1", "a2"], id="a position"),
        pytest.param("conflation=100ms,pace=key", ["b1", "c1", "b2", "a2"], id="rows"),
        pytest.param("conflation=none", ["b1", "c1", "b2", "a2"], id="every message from now on"),
    ],
)
def test_a_move_in_the_midst_of_a_round(options: str, rest: list[str]) -> None:
    """What was still to come of it does, and nothing twice."""
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s")
    driver.publish("a1 b1 c1")
    driver.wait("1s")
    assert described(driver.take_once(1)) == ["a1"]
    driver.change(name, options)
    driver.publish("b2 a2")
    driver.wait("1s")
    assert driver.received(bytes_max=1) == rest


@rule("change-2")
def test_a_change_of_fields_sends_all_records_anew() -> None:
    """A subscription that began with a snapshot gets its rows as the new options show them."""
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b5")
    name = driver.subscribe("conflation=1s,select=[-/v]", command="sow_and_subscribe")
    driver.take()
    driver.change(name, "conflation=1s", command="sow_and_subscribe")
    assert driver.received() == ["a1 b5"]
    (row,) = driver.engine.session_stats("s").subscriptions
    assert (row.matched, row.delivered, row.conflated) == (0, 0, 0)


@rule("delta-6", "change-2")
def test_what_a_change_brings_in_stands_for_no_message() -> None:
    """Receipts still sum up to what matched."""
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b5")
    options = "conflation=1s,receipt"
    name = driver.subscribe(options, wanted="/v > 4", command="sow_and_subscribe", counted=True)
    driver.take()
    driver.publish("b6 b7")
    driver.change(name, options, command="sow_and_subscribe", counted=True)
    assert counts(driver.take()) == [("b7", 2, 3), ("a1", 0, 1)]


@rule("change-2")
def test_after_another_filter_deltas_without_a_snapshot_begin_with_values() -> None:
    """The value that the record has now was never sent."""
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s", wanted="/v < 4", command="delta_subscribe")
    pad = "x" * 40
    driver.publish_documents({"k": "a", "v": 1, "pad": pad})
    driver.wait("1s")
    driver.publish_documents({"k": "a", "v": 5, "w": 1, "pad": pad})
    driver.change(name, "conflation=1s", wanted="/v < 9", command="delta_subscribe")
    driver.publish_documents({"k": "a", "v": 6, "w": 1, "pad": pad})
    driver.wait("1s")
    first, second = rows_of(driver)
    assert getattr(first, "patch", None) is None
    assert getattr(second, "patch", None) is None, "of w the client knows nothing"
    assert b'"w":1' in second.payload


@rule("change-1", "merge-1")
def test_a_new_filter_keeps_every_message_in_order() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("")
    driver.publish("a1 a2 b1")
    driver.change(name, "", wanted="/v < 9")
    driver.publish("a3 a9")
    driver.flush()
    assert driver.received() == ["a1 a2 b1", "a3"]


def test_a_change_during_a_replay_comes_when_it_is_over() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b7 a2")
    name = driver.subscribe("bookmark=epoch,conflation=1s")
    driver.change(name, "conflation=1s", wanted="/v > 4")
    assert driver.received()[1:] == ["b7 a2"]
    driver.publish("a3 b8")
    driver.wait("1s")
    assert driver.received() == ["b8"]


def test_what_a_move_lets_go_ends_where_its_board_does() -> None:
    """Messages that do not match are none to wait for."""
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=1s,oof", wanted="/v < 4", command="sow_and_subscribe")
    driver.take()
    driver.publish("a1 b9")
    driver.change(name, "conflation=100ms,oof", wanted="/v < 4", command="sow_and_subscribe")
    driver.wait("1s")
    assert driver.received() == ["a1"]


@rule("change-1")
def test_of_what_was_taken_in_part_and_what_is_held_each_key_goes_once() -> None:
    driver = ManualDriver()
    driver.topic()
    name = driver.subscribe("conflation=100ms,pace=key")
    driver.publish("b1 a1")
    driver.wait("105ms")
    assert described(driver.take_once(1)) == ["b1"]
    driver.publish("a2")
    driver.change(name, "conflation=100ms")
    driver.wait("1s")
    assert driver.received() == ["a2"]


@pytest.mark.parametrize("options", ["conflation=none", "conflation=1s"])
def test_a_change_during_a_replay_to_the_lane_it_will_join_keeps_the_place(options: str) -> None:
    driver, _ = joined(options)
    driver.publish("a1")
    replay = f"{options},bookmark=epoch"
    name = driver.subscribe(f"{replay},pause", session="replaying")
    driver.change(name, replay, session="replaying")  # it goes on
    assert driver.received("replaying")[1:] == ["a1"]
    driver.wait("1s")
    driver.publish("a2")
    driver.wait("1s")
    assert driver.received("replaying") == ["a2"]
    driver.engine.unsubscribe("replaying", name)


def test_a_change_waits_for_the_end_of_a_replay_that_has_a_rate() -> None:
    driver = ManualDriver()
    driver.topic()
    driver.publish("a1 b7 a2")
    name = driver.subscribe("bookmark=epoch,rate=1")
    driver.change(name, "conflation=1s", wanted="/v > 4")
    assert driver.received()[1:] == ["a1"]
    for row in ("b7", "a2"):
        driver.wait("1s")
        assert driver.received() == [row]
    driver.publish("a3 b8")
    driver.wait("1s")
    assert driver.received() == ["b8"]
