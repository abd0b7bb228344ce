"""The interval of a subscription with `auto`, from decision to words."""

from __future__ import annotations

from dataclasses import replace

from tests.support.rules import rule
from tidegate.app.streams.auto import (
    DECISIONS_MAX,
    AutoInterval,
    at_interval,
    bounds_of,
    clamp,
    decision_document,
)
from tidegate.conflation.auto import Decision, Figures, Observation, Reason
from tidegate.conflation.subscription import Auto, Command, FeedId, LaneId, Shown, Subscription
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import MILLISECOND, SECOND

MS = MILLISECOND
WIDE = Auto(50 * MS, 30 * SECOND)
LANE = LaneId(FeedId(KeySpec.parse("[/k]")), 50 * MS)
PLAIN = Subscription("px", Command.SUBSCRIBE, LANE)


def with_auto(min_ms: int, max_ms: int) -> Subscription:
    return replace(PLAIN, shown=Shown(auto=Auto(min_ms * MS, max_ms * MS)))


def stuck(auto: AutoInterval, at_ms: int) -> Decision | None:
    """A look at a socket that takes nothing any more."""
    seen = Observation(at_ms * MS, 9_000, 9_000, unsent_since=0, flush_bytes=100, is_full=True)
    return auto.record(seen, now_ms=1_000_000 + at_ms)


def test_the_widest_bounds_of_those_that_have_any() -> None:
    assert bounds_of([]) is None
    assert bounds_of([PLAIN]) is None
    subscriptions = [PLAIN, with_auto(100, 500), with_auto(200, 1_000)]
    assert bounds_of(subscriptions) == Auto(100 * MS, 1_000 * MS)


def test_an_interval_stays_within_bounds() -> None:
    bounds = Auto(100 * MS, 500 * MS)
    assert [clamp(bounds, ms * MS) // MS for ms in (50, 200, 1_000)] == [100, 200, 500]


@rule("auto-6")
def test_only_auto_goes_to_another_interval() -> None:
    # rule auto-6
    assert at_interval(PLAIN, SECOND) is PLAIN
    subscription = with_auto(50, 500)
    assert at_interval(subscription, 50 * MS) is subscription
    moved = at_interval(subscription, SECOND)
    assert moved == replace(subscription, lane_id=replace(LANE, interval_ns=500 * MS))


@rule("auto-5")
def test_the_last_fifty_decisions_are_kept() -> None:
    # rule auto-5
    auto = AutoInterval(50 * MS)
    at_ms = 0
    for _ in range(20):
        auto.begin(WIDE)
        while auto.state.longer_ns is not None:
            at_ms += auto.state.interval_ns // MS
            stuck(auto, at_ms)
        auto.keep_to(Auto(50 * MS, 50 * MS))
    assert len(auto.decisions) == DECISIONS_MAX
    assert auto.decisions[-1]["to"] == "30s"
    assert auto.decisions[-1]["at_ms"] == 1_000_000 + at_ms


@rule("auto-6")
def test_bounds_that_change_take_the_interval_along() -> None:
    # rule auto-6
    auto = AutoInterval(50 * MS)
    auto.begin(WIDE)
    for at_ms in (0, 50, 100, 200):
        stuck(auto, at_ms)
    assert auto.state.interval_ns == 200 * MS
    state = auto.state
    auto.keep_to(WIDE)
    assert auto.state is state
    auto.keep_to(Auto(50 * MS, 100 * MS))
    assert (auto.state.interval_ns, auto.state.late_rounds) == (100 * MS, 0)


def test_the_next_look_is_reckoned_from_the_last_one() -> None:
    auto = AutoInterval(200 * MS)
    auto.begin(WIDE)
    assert auto.observation_due(0) is None
    auto.record(Observation(SECOND, flush_bytes=100), now_ms=0)
    assert auto.observation_due(0) == SECOND + 40 * MS
    auto.record(Observation(SECOND + 40 * MS, 100, unsent_since=SECOND), now_ms=0)
    assert auto.observation_due(0) == SECOND + 220 * MS


def test_a_decision_in_words() -> None:
    figures = Figures(1, 2, 3, 4 * MS, late_rounds=5, calm_ns=6 * MS)
    assert decision_document(Decision(0, 500 * MS, SECOND, Reason.SLOW, figures)) == {
        "from": "500ms", "to": "1s", "reason": "slow",
        "inputs": {
            "flush_bytes": 1, "unsent_bytes": 2, "overdue_bytes": 3, "drain_ms": 4,
            "late_rounds": 5, "calm_ms": 6,
        },
    }  # fmt: skip
