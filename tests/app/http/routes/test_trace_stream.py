"""A trace as it is served: woken, beating, overrun."""

from __future__ import annotations

from tests.app.http.routes.test_trace import traced
from tests.support.gateways import names, running_gateway
from tests.support.rules import rule
from tidegate.app.http.routes.trace import TraceStream
from tidegate.conflation.tracing.recorder import MESSAGES_MAX, TraceRecorder, end_recording


async def test_silence_is_filled_with_heartbeats() -> None:
    async with running_gateway(heartbeat="100ms") as running:
        await running.topic()
        async with running.subscribe("conflation=1s"), traced(running) as trace:
            assert (await trace.next()).name == "call"
            raw = await trace.raw_until(b": heartbeat\n\n: heartbeat\n\n")
            assert raw.startswith(b"event: call\n")


@rule("trace-5")
async def test_a_slow_reader_gets_an_end_and_nothing_is_kept() -> None:
    """The publisher does not wait for it."""
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=1h"):
            engine = running.gateway.driver.engine
            subscriber = engine.session(running.hellos[0]["session"]).subscribers.get(("s1", "px"))
            assert subscriber is not None
            stream = TraceStream(running.gateway, subscriber)
            (recorder,) = engine.watchers
            assert isinstance(recorder, TraceRecorder)
            await running.publish({"k": 1})
            frames = engine.topic("px").journal.after(0) * 1_000
            for _ in range(MESSAGES_MAX // 1_000 + 1):
                recorder.published(engine.topic("px"), frames, running.gateway.driver.now())
            assert recorder.is_over
            (shown,) = [piece async for piece in stream.body_iterator]
            assert isinstance(shown, bytes)
            assert shown.startswith(b"event: end\n")
            assert b'"reason":"OVERRUN"' in shown
            end_recording(engine.watchers, recorder)


@rule("trace-5")
async def test_it_ends_with_the_gateway() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe("conflation=1s"), traced(running) as trace:
            await trace.next()
            running.gateway.say_goodbye()
            events = await trace.rest()
            assert names(events) == ["decision", "end"]
            assert '"reason":"SHUTDOWN"' in events[-1].text
