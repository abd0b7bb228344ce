"""Who shares what: counted in operations and objects, not in time (laws 1 and 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.manual_driver import PLENTY, ManualDriver
from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Batch
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.lanes.pending import PendingKeys
from tidegate.conflation.outputs import Rows

MANY = (1, 10, 100)
LANES = ("conflation=100ms", "conflation=100ms,pace=key", "conflation=none")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often boards, slots and lanes were called."""
    counted: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            counted[f"{owner.__name__}.{name}"] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, counting)

    for name in ("put", "put_all", "remove", "rows", "live"):
        count(Board, name)
    for name in ("merge", "open", "remove"):
        count(PendingKeys, name)
    for kind in (*Lane.__subclasses__(),):
        for name in ("accept", "flush"):
            count(kind, name)
    return counted


def crowd(members: int, options: str) -> ManualDriver:
    """A topic with so many sessions that ask for the same."""
    driver = ManualDriver(sessions_max=members)
    driver.topic()
    for number in range(members):
        driver.subscribe(options, session=f"s{number}")
    return driver


@pytest.mark.parametrize("options", LANES)
def test_a_publish_and_a_flush_cost_the_same_for_however_many(
    calls: Counter[str], options: str
) -> None:
    costs: list[dict[str, int]] = []
    for members in MANY:
        driver = crowd(members, options)
        calls.clear()
        driver.publish("a1 b1 a2")
        driver.wait("100ms")
        costs.append(dict(calls))
    assert costs[0]
    assert costs == [costs[0]] * len(MANY)


@pytest.mark.parametrize("options", LANES)
def test_a_flush_makes_one_batch_for_all_who_are_in_step(options: str) -> None:
    driver = crowd(100, options)
    driver.publish("a1 b1")
    driver.wait("100ms")
    batches = [batch for number in range(100) for batch in taken(driver, f"s{number}")]
    assert len(batches) == 100
    assert len({id(batch) for batch in batches}) == 1
    assert all(batch.encoded is batches[0].encoded for batch in batches)


def test_in_step_nobody_asks_the_board(calls: Counter[str]) -> None:
    driver = crowd(100, "conflation=100ms")
    driver.publish("a1 b1")
    driver.wait("100ms")
    calls.clear()
    for number in range(100):
        taken(driver, f"s{number}")
    assert not calls


def test_a_member_behind_has_its_own_answer_and_joins_in_again() -> None:
    driver = crowd(3, "conflation=100ms")
    driver.publish("a1")
    driver.wait("100ms")
    for session in ("s0", "s1"):
        taken(driver, session)
    driver.publish("b1")
    driver.wait("100ms")
    first, second, own = (taken(driver, session)[0] for session in ("s0", "s1", "s2"))
    assert first is second
    assert own is not first
    driver.publish("a2")
    driver.wait("100ms")
    assert len({id(taken(driver, session)[0]) for session in ("s0", "s1", "s2")}) == 1


@pytest.mark.parametrize(
    ("one", "other", "more", "others"),
    [
        ("conflation=1s", "conflation=1000ms", {}, {}),
        ("conflation=1s", "conflation=1s,conflation_key=[/k]", {}, {}),
        ("conflation=1s", " conflation = 1S , ", {}, {}),
        ("conflation=1s", "pace=batch,conflation=1s", {}, {}),
        ("conflation=1s", "conflation=1s,edge=trailing", {}, {}),
        ("conflation=1s,pace=key,edge=leading", "conflation=1s,edge=leading", {}, {}),
        ("", "conflation=none", {}, {}),
        ("conflation=1s", "conflation=1s", {"wanted": "/v > 1"}, {"wanted": "( /v>1 )"}),
        ("conflation=1s", "conflation=1s", {"wanted": "/k = 'a'"}, {"wanted": "$.k == 'a'"}),
        ("conflation=1s,never=[/v > 1]", "conflation=1s,never=[/v>1]", {}, {}),
        ("conflation=1s,select=[-/,+/k]", "conflation=1s,select=[ -/ , +/k ]", {}, {}),
        ("conflation=1s,receipt", "conflation=1s,timestamp", {}, {}),
        ("conflation=1s,receipt", "conflation=1s", {}, {"counted": True}),
        ("conflation=1s", "conflation=1s,send_keys,no_sowkey,progress", {}, {}),
        ("conflation=1s", "conflation=1s,max_age=2s", {}, {}),
        ("conflation=1s", "conflation=1s,batch_size=5", {}, {}),
    ],
)
def test_what_asks_for_the_same_shares_a_lane(
    one: str, other: str, more: dict[str, Any], others: dict[str, Any]
) -> None:
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(one, session="s1", **more)
    driver.subscribe(other, session="s2", **others)
    driver.publish("a1 a2 b1")
    driver.wait("1s")
    first, second = taken(driver, "s1"), taken(driver, "s2")
    assert first
    assert [id(batch) for batch in first] == [id(batch) for batch in second]


def test_what_is_shown_and_when_makes_lanes_but_no_boards() -> None:
    driver = ManualDriver()
    driver.topic()
    for number, options in enumerate(
        (
            *("conflation=100ms", "conflation=1s", "conflation=1s,pace=key", "conflation=none"),
            *("conflation=1s,receipt", "conflation=1s,timestamp", "conflation=1s,oof"),
            *(
                "conflation=1s,select=[-/v]",
                "conflation=1s,never=[/v > 1]",
                "conflation=1s,reduce=[/v:sum]",
            ),
        )
    ):
        driver.subscribe(options, session=f"s{number}")
    assert len(driver.engine.topic("px").feeds) == 1
    (feed,) = driver.engine.topic("px").feeds.values()
    assert len(feed.lanes) == 9, "receipt and timestamp are one lane"


def test_equal_filters_share_one_board() -> None:
    driver = ManualDriver()
    driver.topic()
    for number, text in enumerate(("/v > 1", "/v>1", "(/v > 1)", "/v > 2")):
        driver.subscribe("conflation=1s", session=f"s{number}", wanted=text)
    assert len(driver.engine.topic("px").feeds) == 3, "the records, and two filters"


def test_a_message_costs_only_the_boards_that_match(calls: Counter[str]) -> None:
    costs = []
    for filters in (1, 100):
        driver = ManualDriver(sessions_max=filters)
        driver.topic()
        for number in range(filters):
            driver.subscribe("conflation=1s", session=f"s{number}", wanted=f"/v = {number}")
        calls.clear()
        driver.publish("a0")
        costs.append(dict(calls))
    assert costs[0] == costs[1]


def test_the_one_who_leaves_last_takes_lane_and_board_along() -> None:
    driver = ManualDriver()
    driver.topic()
    for session in ("s1", "s2"):
        driver.subscribe("conflation=1s", session=session, wanted="/v > 1")
    driver.engine.close_session("s1")
    assert len(driver.engine.topic("px").feeds) == 2
    driver.engine.close_session("s2")
    assert len(driver.engine.topic("px").feeds) == 1
    assert not [lane for f in driver.engine.topic("px").feeds.values() for lane in f.lanes]


def taken(driver: ManualDriver, session: str) -> list[Batch]:
    """The batches that a session is given, no copies."""
    return [out.batch for out in driver.take(session, PLENTY) if isinstance(out, Rows)]


def test_the_plain_interval_looks_at_one_message_only(calls: Counter[str]) -> None:
    """Law 1: an idle lane listens for the message that opens its interval, and no further."""
    driver = crowd(1, "conflation=100ms")
    calls.clear()
    for number in range(1, 6):
        driver.publish(f"a{number}")
    assert calls == {"Board.put_all": 5, "IntervalLane.accept": 1}
