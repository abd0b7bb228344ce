"""The CPU time of a publish to many subscriptions: equal ones, and ones that all differ.

The engine alone, without sockets: what a publish costs before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.figure import Figure
from bench.openings import Stage, cpu_s

COUNTS = (1, 10, 100, 1_000, 10_000)
KEYS = 1_000  # records beforehand
LANES = 1_500
MESSAGES = 20_000
A_REQUEST = 10
RUNS = 3
RATIO_MAX = {"equal subscriptions": 1.1, "filters of equality": 2.0}


def figures() -> Iterator[Figure]:
    """Yield the cost of a message by the number of subscriptions, and the ratio to one."""
    for kind, filter_text in (("equal subscriptions", ""), ("filters of equality", "/n = {}")):
        costs = {count: _publishing(_subscribed(count, filter_text)) for count in COUNTS}
        for count, cost in costs.items():
            yield Figure(f"a message to {count:,} {kind}", cost, "us CPU", scale="cpu")
        most = COUNTS[-1]
        what = f"a message to {most:,} {kind}, by one to 1"
        yield Figure(what, costs[most] / costs[1], "x", RATIO_MAX[kind], scale="ratio")
    lanes = Stage()
    lanes.publish(range(KEYS))
    for number in range(LANES):
        lanes.open(f"conflation=1s,conflation_key=[/k,/x{number}]", "subscribe")
    yield Figure(f"a message on {LANES:,} conflation keys", _publishing(lanes, 200), "us CPU")


def _subscribed(count: int, filter_text: str) -> Stage:
    stage = Stage()
    stage.publish(range(KEYS))
    for number in range(count):
        stage.open("conflation=1s", "subscribe", filter_text=filter_text.format(number))
    return stage


def _publishing(stage: Stage, messages: int = MESSAGES) -> float:
    """Return the microseconds of a message in requests of ten, the best of some runs."""
    stage.publish(range(messages), A_REQUEST)  # the first message of each lane opens its interval
    runs = [cpu_s(lambda: stage.publish(range(messages), A_REQUEST)) for _ in range(RUNS)]
    return min(runs) / messages * 1e6
