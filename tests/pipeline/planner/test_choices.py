from __future__ import annotations

import json

from tidegate.pipeline.columns.intervals import MILLISECOND_NS, Interval, Pace
from tidegate.pipeline.planner.planning import Choice, Plan
from tidegate.pipeline.planner.tally import Hot, Seen, Sent

SEEN = Seen(1_000, 50_000, 4, 200, [Hot('["IBM"]', 600), Hot('["AIG"]', 400)])


def choice(interval_ms: int, messages: int, pace: Pace = Pace.KEY, key: str = "/a") -> Choice:
    interval = Interval(interval_ms * MILLISECOND_NS, pace)
    return Choice(
        key, f"{interval_ms}ms", interval, Sent(messages, messages * 50, {7: messages}), SEEN
    )


def plan_of(*choices: Choice) -> Plan:
    return Plan(list(choices))


def best(*messages: int) -> int:
    """The recommended interval, where each is ten times the one before."""
    found = plan_of(*(choice(10 * 10**at, sent) for at, sent in enumerate(messages)))
    return found.recommended()[0].interval.interval_ns // MILLISECOND_NS


def test_recommended_is_the_shortest_that_saves_nine_tenths_of_the_longest() -> None:
    assert best(280, 100, 0) == 100  # 72, 90 and 100 percent: nine tenths exactly is enough
    assert best(280, 101, 0) == 1_000
    assert best(190, 100, 100) == 10
    assert best(1_000, 1_000) == 10  # where nothing is saved, nothing is waited for


def test_the_longest_counts_also_where_it_is_named_first() -> None:
    found = plan_of(choice(1_000, 0), choice(10, 280), choice(100, 50))
    assert found.recommended()[0].interval_text == "100ms"


def test_each_key_and_pace_has_its_own_and_the_first_is_the_answer() -> None:
    found = plan_of(
        choice(10, 500), choice(100, 0), choice(10, 9, Pace.BATCH), choice(10, 1, key="/b")
    )
    told = found.document()
    assert [(one["key"], one["pace"], one["interval"]) for one in told["recommendations"]] == [
        ("/a", "key", "100ms"),
        ("/a", "batch", "10ms"),
        ("/b", "key", "10ms"),
    ]
    assert told["recommended"] == told["recommendations"][0]


def test_the_document_has_what_the_contract_says() -> None:
    told = json.loads(json.dumps(plan_of(choice(10, 280)).document()))
    assert told["choices"] == [
        {"key": "/a", "interval": "10ms", "pace": "key", "messages": 280, "bytes": 14_000,
         "saving": 0.72, "age_p50_ms": 7, "age_p99_ms": 7, "keys": 4}
    ]  # fmt: skip
    assert told["history"] == [
        {"key": "/a", "messages": 1_000, "bytes": 50_000, "keys": 4, "memory_bytes": 200,
         "hot": [{"key": '["IBM"]', "messages": 600}, {"key": '["AIG"]', "messages": 400}]}
    ]  # fmt: skip


def test_the_table_marks_what_is_recommended() -> None:
    lines = plan_of(choice(10, 280), choice(100, 50)).table().splitlines()
    assert lines[:3] == [
        "key  pace  interval  messages   bytes  saving  age p50  age p99  keys",
        "/a   key       10ms       280  14,000   72.0%     7 ms     7 ms     4",
        "/a   key      100ms        50   2,500   95.0%     7 ms     7 ms     4  <",
    ]
    assert lines[3].startswith("/a: 1,000 messages, 50,000 bytes in; 4 keys whose newest are 200 ")
    assert lines[3].endswith('most of ["IBM"] 60%, ["AIG"] 40%')
