"""Topics and sessions as they go: rates of two samples, drawn or as NDJSON."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from tests.support.commands import call
from tidegate.app.cli.top import page, rated_sessions, rated_topics
from tidegate.clients.gateway import Gateway


def topic(name: str, epoch: str = "e", **counters: int) -> dict[str, Any]:
    figures = ("messages_in", "delivered", "conflated", "keys", "bytes", "subscriptions", "lanes")
    return {"topic": name, "epoch": epoch} | dict.fromkeys(figures, 0) | counters


def session(name: str, queued: int) -> dict[str, Any]:
    return {
        "session": name,
        "state": "attached",
        "subscriptions": 1,
        "topics": ["px"],
        "queue": {"messages": queued, "bytes": 10 * queued},
        "unsent_bytes": 0,
    }


def test_rates_are_what_came_in_the_time_between() -> None:
    before = [topic("a", messages_in=10, delivered=4, conflated=1)]
    [shown] = rated_topics([topic("a", messages_in=110, delivered=24, conflated=81)], before, 2.0)
    rates = (shown["in_per_s"], shown["out_per_s"], shown["conflated_per_s"])
    assert rates == (50, 10, 40)


@pytest.mark.parametrize(
    "before",
    [
        [],
        [topic("other", messages_in=1)],
        [topic("a", epoch="earlier", messages_in=1)],
        [topic("a", messages_in=50)],
    ],
    ids=["first sample", "new topic", "made anew", "counter went back"],
)
def test_what_has_no_sample_before_it_has_no_rate(before: list[dict[str, Any]]) -> None:
    [shown] = rated_topics([topic("a", messages_in=5)], before, 1.0)
    assert shown["in_per_s"] is None


def test_an_unusable_topic_has_no_figures() -> None:
    unusable = {"topic": "b", "epoch": "e", "state": "unusable", "reason": "No such merger."}
    [first, second] = rated_topics([unusable, topic("a", messages_in=1)], [unusable], 1.0)
    assert (first["topic"], second["topic"]) == ("a", "b")
    assert set(second.values()) == {"b", None}
    [again] = rated_topics([topic("b", messages_in=5)], [unusable], 1.0)
    assert again["in_per_s"] is None
    page({"topics": [first, second], "sessions": []}, 10)


def test_the_busiest_comes_first() -> None:
    before = [topic(name) for name in "abc"]
    found = rated_topics([topic("a"), topic("b"), topic("c", messages_in=9)], before, 1.0)
    assert [it["topic"] for it in found] == ["c", "a", "b"]
    rated = rated_sessions([session("x", 1), session("y", 7)], [session("y", 9)], 2.0)
    assert [(it["session"], it["queued_per_s"]) for it in rated] == [("y", -1), ("x", None)]


def drawn(topics: int, sessions: int, lines_max: int) -> str:
    sample = {
        "topics": rated_topics([topic(f"t{n}") for n in range(topics)], [], 1.0),
        "sessions": rated_sessions([session(f"s{n}", n) for n in range(sessions)], [], 1.0),
    }
    out = io.StringIO()
    Console(file=out, width=120).print(page(sample, lines_max))
    return out.getvalue()


def test_the_page_fits_and_says_what_is_left_out() -> None:
    everything = drawn(topics=2, sessions=1, lines_max=30)
    assert [name for name in ("t0", "t1", "s0") if name not in everything] == []
    assert "more" not in everything
    over_half_full = drawn(topics=50, sessions=50, lines_max=30)
    assert "30 more topics, 40 more sessions" in over_half_full
    assert over_half_full.count("\n") <= 30 + 9
    assert "s49" in over_half_full


def test_piped_each_sample_is_a_line_of_json(gateway: Gateway) -> None:
    gateway.put_topic("px", {"key": ["/n"]})
    gateway.publish("px", [b'{"n":1}'])
    with gateway.subscribe("px") as subscription:
        next(iter(subscription))
        words = ("--count", "2", "--interval", "10ms", "--gateway", gateway.base_url)
        ended = call("top", *words)
    assert (ended.code, ended.err) == (0, "")
    first, second = (json.loads(line) for line in ended.out.splitlines())
    assert (first["topics"][0]["topic"], first["topics"][0]["in_per_s"]) == ("px", None)
    assert (second["topics"][0]["messages_in"], second["topics"][0]["in_per_s"]) == (1, 0)
    assert [each["subscriptions"] for each in second["sessions"]] == [1]


def test_it_ends_after_the_time(gateway: Gateway) -> None:
    words = ("--for", "50ms", "--interval", "1h", "--gateway", gateway.base_url)
    ended = call("top", *words)
    assert (ended.code, ended.out.count("\n")) == (0, 1)


def test_an_unreachable_gateway_is_3() -> None:
    assert call("top", "--gateway", "http://127.0.0.1:1").code == 3
