"""Traces of sessions with small queues: every policy, lanes of all kinds, several subscriptions."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.conflation.tracing.test_witness import verdict
from tests.support.profiles import examples
from tests.support.rules import rule
from tests.support.tracing import TracedDriver
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.tracing.replay import Trace
from tidegate.keys.merging import Merger

OPTIONS = ("", "oof", "conflation=100ms,oof", "conflation=100ms,pace=key", "conflation=1s,receipt")
COMMANDS = ("subscribe", "sow_and_subscribe", "delta_subscribe", "sow_and_delta_subscribe")
POLICIES = ("conflate", "always", "off", "unsubscribe")
FORMS: tuple[dict[str, Any], ...] = ({}, {"replaces": True}, {"merge": Merger("tests:v", verdict)})
STEPS = (
    "say",
    "say",
    "remove",
    "take",
    "piece",
    "wait",
    "flush",
    "other",
    "change",
    "tune",
    "idle",
)
STEP = st.tuples(st.sampled_from(STEPS), st.integers(0, 59))
ENDINGS = (None, "BACK_PRESSURE", "MESSAGE_QUEUE_LIMIT_REACHED")


@rule("trace-1")
@given(
    options=st.sampled_from(OPTIONS),
    command=st.sampled_from(COMMANDS),
    policy=st.sampled_from(POLICIES),
    form=st.sampled_from(FORMS),
    messages_max=st.integers(1, 4),
    before=st.lists(STEP, max_size=6),
    steps=st.lists(STEP, min_size=4, max_size=25),
)
@example(
    options="",
    command="subscribe",
    policy="conflate",
    form=FORMS[2],
    messages_max=2,
    before=[],
    steps=[("say", 0)] * 4,
)
@examples(20)
def test_a_trace_of_a_session_with_a_small_queue_replays(
    options: str,
    command: str,
    policy: str,
    form: dict[str, Any],
    messages_max: int,
    before: list[tuple[str, int]],
    steps: list[tuple[str, int]],
) -> None:
    driver = TracedDriver()
    driver.topic(policy=policy, **form)
    driver.session(messages_max=messages_max)
    name = driver.subscribe(options, command=command)
    driver.subscribe(session="s")
    for step, number in before:
        play(driver, name, step, number)
    if not is_there(driver, name):
        return
    driver.trace(name)
    for step, number in steps:
        play(driver, name, step, number)
    driver.wait("2s")
    if is_there(driver, name):
        driver.take()
    assert driver.running is not None
    calls = driver.running.take_calls()
    trace = Trace()
    for call in calls:
        list(trace.decisions(call))
    assert trace.ended in ENDINGS, trace.ended


def is_there(driver: TracedDriver, name: str) -> bool:
    try:
        return driver.engine.session("s").subscribers.get((name, "px")) is not None
    except ValueError:
        return False


def play(driver: TracedDriver, name: str, step: str, number: int) -> None:
    """One step, as far as it is possible."""
    token = f"{'abc'[number % 3]}{number // 3 % 5}"
    match step:
        case "say":
            driver.publish(" ".join([token] * (1 + number // 40)), exempt=number % 11 == 10)
        case "remove":
            driver.remove(token)
        case "wait":
            driver.wait(f"{1 + 7 * number}ms")
        case "flush":
            driver.flush()
        case "idle":
            driver.engine.conflate_idle(driver.now)
        case "other":
            driver.subscribe(OPTIONS[number % len(OPTIONS)], session="other")
        case "take" if is_there(driver, name):
            driver.take()
        case "piece" if is_there(driver, name):
            driver.take_once(20)
        case "change" if is_there(driver, name):
            driver.change(name, OPTIONS[number % len(OPTIONS)])
        case "tune" if is_there(driver, name):
            limits = QueueLimits(1 + number % 5, 1 << 20)
            driver.engine.set_session_limits("s", limits, conflated=number % 2 == 0)
