"""Quotas: rates by a clock, limits of a policy, and the lanes that a message may reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.app.access.grants import Grants, Subject
from tidegate.app.access.limits.lane_use import LaneUse
from tidegate.app.access.limits.memory import (
    MEASURE_EVERY_NS,
    MemoryBound,
    available_bytes,
    control_group_bounds,
    resident_bytes,
)
from tidegate.app.access.limits.quota import Bucket, Limits, Quotas, parse_limits, widest
from tidegate.app.access.policy import Policy, PolicyInvalid
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.errors import LimitReached
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.subscription import LaneId
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.duration import SECOND


def lane(filter_text: str = "", options: str = "conflation=1s") -> LaneId:
    definition = Definition(History(10), KeySpec.of(["/k"]))
    return decide(
        "t", definition, Options.parse(options), command="subscribe", filter_text=filter_text
    ).lane_id


def ann(**limits: int) -> Subject:
    return Subject("ann", 0, Grants(), limits=limits or None)


def quotas_of(**limits: Any) -> Quotas:
    return Quotas(Settings(auth_keys="keys.json", **limits), lambda: 0)


def test_a_bucket_passes_a_seconds_worth_and_waits_off_its_debt() -> None:
    bucket = Bucket(10, 0)
    assert bucket.wait_s(10, 0) == 0
    bucket.spend(35)
    assert bucket.wait_s(10, 0) == 3
    assert bucket.wait_s(10, 2 * SECOND) == 1
    assert bucket.wait_s(10, 3 * SECOND) == 0
    # However long nobody publishes, no more than a second's worth is saved.
    assert bucket.wait_s(10, 3_600 * SECOND) == 0
    bucket.spend(11)
    assert bucket.wait_s(10, 3_600 * SECOND) == 1


def test_no_rate_is_no_limit() -> None:
    quotas = quotas_of()
    for subject in (None, ann()):
        quotas.check_publish(subject)
        quotas.note_publish(subject, 1 << 30, 1 << 40)
        quotas.check_publish(subject)
    # What passed without one is no debt where a policy brings one.
    limited = ann(publish_messages=10)
    quotas.check_publish(limited)
    quotas.note_publish(limited, 11, 1 << 40)
    with pytest.raises(Refused, match="subject_publish_messages_max"):
        quotas.check_publish(limited)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (["sessions"], "expected a table"),
        ({"session": 1}, "unknown limit 'session'"),
        ({"sessions": -1}, "sessions: expected a whole number"),
        ({"sessions": True}, "sessions: expected a whole number"),
        ({"sessions": "10"}, "sessions: expected a whole number"),
        ({"sessions": 1 << 60}, "sessions: expected a whole number"),
    ],
)
def test_limits_that_are_not_understood_are_refused(document: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_limits(document)
    with pytest.raises(PolicyInvalid, match="limits"):
        Policy.parse(b"claim = 'groups'\n[limits]\ntraders = {session = 1}")


def test_the_widest_limit_of_several_values_counts_and_none_is_the_widest() -> None:
    assert widest([{"sessions": 1, "lanes": 9}, {"sessions": 5}]) == {"sessions": 5, "lanes": 9}
    assert widest([{"lanes": 9}, {"lanes": 0}, {"lanes": 3}]) == {"lanes": 0}


def test_a_policy_gives_limits_by_the_values_of_its_claim() -> None:
    policy = Policy.parse(
        b"claim = 'groups'\n[limits.traders]\nlanes = 7\n[limits.desk]\nlanes = 9\nsessions = 2"
    )
    subject = policy.applied(Subject("ann", 0, Grants(), values=("traders", "desk", "other")))
    assert subject.limits == {"lanes": 9, "sessions": 2}
    quotas = quotas_of(subject_topics_max=3)
    assert quotas.limits("ann", subject) == Limits(2, 10_000, 9, 3, 0, 0, 8)
    # Another limit ends no stream, as other grants do.
    assert Policy().applied(subject) == subject


def test_nobody_has_the_limits_of_the_gateway_alone() -> None:
    quotas = quotas_of(subject_sessions_max=1, subject_lanes_max=1)
    quotas.usage("").sessions = 5
    quotas.check_session("", None)
    quotas.usage("").check(None, [("t", lane("/a > 1")), ("t", lane("/a > 2"))], 2)


def test_a_lane_that_is_held_may_be_shared_when_no_other_may_come() -> None:
    quotas = quotas_of(subject_lanes_max=1)
    mine, yours = quotas.usage("ann"), quotas.usage("bob")
    mine.hold("t", lane())
    mine.check(ann(), [("t", lane()), ("u", lane())], 2)
    with pytest.raises(LimitReached, match="subject_lanes_max"):
        mine.check(ann(), [("t", lane("/a > 1"))], 1)
    mine.check(ann(lanes=2), [("t", lane("/a > 1"))], 1)
    yours.check(None, [("t", lane("/a > 1"))], 1)
    mine.release("t", lane())
    mine.check(ann(), [("t", lane("/a > 1"))], 1)
    assert not mine.lane_ids
    assert not quotas.lanes.subscriptions


def test_subscriptions_of_a_subject_and_of_all_are_limited() -> None:
    quotas = quotas_of(subject_subscriptions_max=2, subscriptions_max=3)
    mine = quotas.usage("ann")
    mine.hold("t", lane())
    mine.check(None, [("t", lane())], 1)
    with pytest.raises(LimitReached, match="subject_subscriptions_max"):
        mine.check(None, [("t", lane())], 2)
    with pytest.raises(LimitReached, match=r"\(subscriptions_max\)"):
        quotas.usage("bob").check(ann(subscriptions=0), [("t", lane())], 3)


def test_filters_that_no_message_passes_together_do_not_count_together() -> None:
    lanes = LaneUse(100, 3)
    for number in range(20):
        lanes.check([("t", lane(f"/a = {number}"))])
        lanes.hold("t", lane(f"/a = {number}"))
    # One field is read in every message, and one lane of its value is reached.
    lanes.hold("t", lane("/a = 1 AND /b > 1"))
    with pytest.raises(LimitReached, match="topic_lanes_max"):
        lanes.check([("t", lane("/a = 1 AND /b > 2"))])
    lanes.check([("t", lane("/a = 2 AND /b > 2"))])
    lanes.check([("u", lane("/b > 2"))])


def test_each_field_that_filters_ask_for_counts() -> None:
    lanes = LaneUse(100, 3)
    for number in range(3):
        lanes.check([("t", lane(f"/f{number} = 1"))])
        lanes.hold("t", lane(f"/f{number} = 1"))
    with pytest.raises(LimitReached, match="topic_lanes_max"):
        lanes.check([("t", lane("/f3 = 1"))])
    lanes.release("t", lane("/f0 = 1"))
    lanes.check([("t", lane("/f3 = 1"))])


def test_all_lanes_together_are_limited_and_let_go() -> None:
    lanes = LaneUse(2, 100)
    for _ in range(2):
        lanes.hold("t", lane("/a > 1"))
    lanes.hold("u", lane("/a > 1"))
    with pytest.raises(LimitReached, match="lanes_max"):
        lanes.check([("t", lane("/a > 2"))])
    lanes.release("t", lane("/a > 1"))
    with pytest.raises(LimitReached, match="lanes_max"):
        lanes.check([("t", lane("/a > 2"))])
    lanes.release("t", lane("/a > 1"))
    lanes.check([("t", lane("/a > 2"))])


def test_publishing_waits_for_the_rate_of_the_subject_and_of_all() -> None:
    now = 0
    settings = Settings(
        auth_keys="keys.json", publish_bytes_max=100, subject_publish_messages_max=10
    )
    quotas = Quotas(settings, lambda: now)
    subject = ann()
    quotas.check_publish(subject)
    quotas.note_publish(subject, 25, 50)
    with pytest.raises(Refused, match="subject_publish_messages_max") as refused:
        quotas.check_publish(subject)
    assert refused.value.retry_after_s == 2
    quotas.check_publish(Subject("bob", 0, Grants()))
    quotas.note_publish(None, 1, 60)
    with pytest.raises(Refused, match="publish_bytes_max"):
        quotas.check_publish(None)
    now = 3 * SECOND
    quotas.check_publish(subject)


def test_journals_are_let_go_also_when_reading_fails() -> None:
    quotas = quotas_of(journal_reads_max=2, subject_journal_reads_max=1)
    with quotas.reading(ann()):
        with pytest.raises(Refused, match="subject_journal_reads_max"), quotas.reading(ann()):
            pass
        all_taken = pytest.raises(Refused, match=r"\(journal_reads_max\)")
        with quotas.reading(None), all_taken, quotas.reading(None):
            pass
    with pytest.raises(ZeroDivisionError), quotas.reading(ann()):
        raise ZeroDivisionError
    with quotas.reading(ann()):
        pass


def test_topics_of_a_subject_count_until_they_are_gone() -> None:
    quotas = quotas_of(subject_topics_max=2)
    there = {"a", "b"}
    for name in sorted(there):
        quotas.check_topic(ann(), there.__contains__)
        quotas.note_topic(ann(), name)
    with pytest.raises(Refused, match="subject_topics_max"):
        quotas.check_topic(ann(), there.__contains__)
    quotas.check_topic(None, there.__contains__)
    there.remove("a")
    quotas.check_topic(ann(), there.__contains__)


def test_names_of_topics_are_not_kept_for_a_subject_without_a_limit() -> None:
    quotas = quotas_of(subject_topics_max=0)
    for number in range(100):
        quotas.check_topic(ann(), lambda _: False)
        quotas.note_topic(ann(), f"t{number}")
    assert not quotas.usage("ann").topics
    limited = quotas_of(subject_topics_max=10)
    for number in range(100):
        limited.check_topic(ann(), lambda _: False)
        limited.note_topic(ann(), f"t{number}")
    assert len(limited.usage("ann").topics) <= 10


def test_memory_is_looked_at_now_and_then_and_refuses_until_it_is_back() -> None:
    now, resident = 0, 10
    looks: list[int] = []

    def look() -> int:
        looks.append(now)
        return resident

    bound = MemoryBound(100, lambda: now, look)
    bound.check()
    resident = 101
    bound.check()  # not looked at yet
    now = MEASURE_EVERY_NS
    with pytest.raises(LimitReached, match="memory_bytes_max"):
        bound.check()
    resident = 100
    now += MEASURE_EVERY_NS
    bound.check()
    assert looks == [0, MEASURE_EVERY_NS, MEASURE_EVERY_NS, 2 * MEASURE_EVERY_NS]


def test_the_bound_is_a_share_of_what_there_is() -> None:
    assert 1 << 20 < resident_bytes() < available_bytes()
    assert MemoryBound(0, lambda: 0).bytes_max == int(0.75 * available_bytes())
    assert MemoryBound(0, lambda: 0, workers=3).bytes_max == int(0.25 * available_bytes())


@pytest.mark.parametrize(
    ("groups", "bounds", "least"),
    [
        ("0::/\n", {"memory.max": "500"}, 500),
        ("0::/system.slice/tidegate.service\n", {"system.slice/memory.max": "700"}, 700),
        (
            "0::/a/b\n",
            {"a/b/memory.max": "max", "a/b/memory.high": "300", "a/memory.max": "400"},
            300,
        ),
        ("4:cpu:/c\n3:memory:/c/d\n", {"memory/c/memory.limit_in_bytes": "900"}, 900),
        # The path of another mount: what stands there is the container's own group.
        ("3:cpu,memory:/docker/1\n", {"memory/memory.limit_in_bytes": "800"}, 800),
        ("0::/x:y/z\n", {"x:y/z/memory.max": "600"}, 600),
        ("0::/\n", {"memory.max": "max"}, None),
        ("", {}, None),
    ],
)
def test_the_tightest_bound_of_control_groups_counts(
    tmp_path: Path, groups: str, bounds: dict[str, str], least: int | None
) -> None:
    listed = tmp_path / "groups"
    listed.write_text(groups)
    for name, text in bounds.items():
        (tmp_path / "mount" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mount" / name).write_text(text + "\n")
    found = control_group_bounds(listed, tmp_path / "mount")
    assert min(found, default=None) == least
    assert control_group_bounds(tmp_path / "none", tmp_path) == []
