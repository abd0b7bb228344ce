"""The product as the golden transcripts know it: its verbs in, lines of text out.

Only this module, `definitions` and `lines` name parts of the product. When something is moved
or renamed, change these and keep the text; then the recorded hashes still compare.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.golden.definitions import definition_of, frame_of
from tests.golden.history import Message
from tests.golden.lines import (
    Lines,
    announcement_values,
    decision_text,
    engine_stats_lines,
    output_lines,
    row_line,
    session_stats_lines,
    topic_stats_line,
)
from tidegate.conflation.auto import InFlight, State, step
from tidegate.conflation.engine import Engine
from tidegate.conflation.errors import EngineError
from tidegate.conflation.frame import RestoredTopic
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.options.grant import Request, grant, granted
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import (
    CloseReason,
    Goodbye,
    HistoryWanted,
    Rows,
)
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.subscription import Auto, Subscription
from tidegate.conflation.topics.recorded import estimate
from tidegate.conflation.topics.topic import Archived
from tidegate.conflation.tracing.recorder import TraceRecorder, begin_recording, end_recording
from tidegate.conflation.tracing.replay import Trace
from tidegate.keys.errors import KeysError
from tidegate.keys.text.bookmark import Bookmark

PLENTY = 1 << 30
REFUSALS = (EngineError, KeysError)


def refusal(error: Exception) -> str:
    """The stable code and the position; the text is for people and may change."""
    code = getattr(error, "code", "internal")
    return f"refused {code} at {getattr(error, 'position', None)}"


@dataclass(slots=True)
class Asked:
    """What a subscription asked for last: what a change begins with."""

    request: Request
    options: Options


class Product:
    """One engine; every verb yields its lines. Refusals are for the caller.

    `shares`: sessions that have taken all there was take with others that are like them, as the
    gateway's streams do.
    """

    def __init__(self, *, sessions_max: int, subscriptions_max: int, shares: bool = False) -> None:
        self.shared: list[int] = []  # how many sessions each answer of a cohort was for
        self._shares = shares
        self._cohorts: dict[Cohort, None] = {}
        self._engine = Engine(sessions_max=sessions_max, subscriptions_max=subscriptions_max)
        self._asked: dict[tuple[str, str, str], Asked] = {}
        self._traces: list[tuple[TraceRecorder, Trace]] = []

    # Topics

    def define(self, topic: str, definition: dict[str, Any], epoch: str) -> Lines:
        self._engine.define_topic(topic, definition_of(definition), epoch)
        yield from ()

    def restore(self, topic: str, kept: dict[str, Any], now: int, now_ms: int) -> Lines:
        self._engine.restore_topic(topic, _kept(kept), now, now_ms)
        yield from ()

    def renew(self, topic: str, epoch: str, kept: dict[str, Any], now: int, now_ms: int) -> Lines:
        self._engine.restart_topic(topic, epoch, _kept(kept), now, now_ms)
        yield from ()

    def drop(self, topic: str) -> Lines:
        self._engine.drop_topic(topic)
        yield from ()

    def checkpoint(self, topic: str, offset: int) -> Lines:
        self._engine.set_checkpoint(topic, offset)
        yield from ()

    def archive(self, topic: str, first: int, last: int, stamps: list[list[int]]) -> Lines:
        times = tuple((ms, offset) for ms, offset in stamps)
        self._engine.topic(topic).archived = Archived(first, last, times)
        yield from ()

    def publish(self, topic: str, messages: Sequence[Message], now: int) -> Lines:
        self._engine.publish(topic, [frame_of(one) for one in messages], now)
        yield from ()

    def history(self, topic: str, offset: int | None, messages_max: int) -> Lines:
        """What the journal has behind a place, and what stands there."""
        found = self._engine.topic(topic)
        after = found.journal.dropped_through if offset is None else offset
        for frame in found.since(found.bookmark(after), messages_max):
            yield row_line(frame)

    def records(self, topic: str, offset: int) -> Lines:
        """What a store asks for: what has changed since, what has stood there up to a place."""
        found = self._engine.topic(topic)
        if found.sow is None:
            yield "no records"
            return
        board = found.sow.board
        for frame in found.records(found.sow.id):
            yield f"live {row_line(frame)}"
        for frame in board.newest(offset):
            yield f"newest {row_line(frame)}"
        for frame in board.oldest_through(offset, 5):
            yield f"oldest {row_line(frame)}"
        yield f"exempt {board.exempt_last} tombstones {len(board.departed(offset))}"

    def estimate(self, session: str, name: str, topic: str) -> Lines:
        """What a lane would have sent of what the journal has."""
        subscriber = self._engine.session(session).subscribers.get((name, topic))
        if subscriber is None:
            yield "nothing to estimate"
            return
        there, lane_id = subscriber.topic, subscriber.member.subscription.lane_id
        key_spec, records = there.definition.key_spec, there.records(lane_id.feed)
        values = [
            one
            for one in there.since(there.bookmark(there.journal.dropped_through), PLENTY)
            if not one.removed
        ]
        found = estimate(values, records, lane_id, key_spec, topic)
        if found is not None:
            yield f"estimate {found.rows} {found.payload_bytes} {found.duration_ns}"

    # Sessions

    def open(self, session: str, limits: list[int], *, lasts: bool, conflated: bool) -> Lines:
        self._engine.open_session(session, QueueLimits(*limits), lasts=lasts, conflated=conflated)
        yield from ()

    def close(self, session: str, reason: str | None) -> Lines:
        self._engine.close_session(session, None if reason is None else CloseReason(reason))
        yield from ()

    def tune(self, session: str, limits: list[int], *, conflated: bool) -> Lines:
        self._engine.set_session_limits(session, QueueLimits(*limits), conflated=conflated)
        yield from ()

    def unsent(self, session: str, unsent_bytes: int) -> Lines:
        self._engine.note_unsent(session, unsent_bytes)
        yield from ()

    def conflate_idle(self, now: int) -> Lines:
        yield f"long {self._engine.has_long_queues}"
        yield f"relieved {self._engine.conflate_idle(now)}"

    # Subscriptions

    def subscribe(
        self, session: str, name: str, topic: str, asked: dict[str, Any], now: int
    ) -> Lines:
        options = Options.parse(asked["options"])
        yield f"asked {options.text()}"
        resume = asked["resume"]
        request = Request(
            topic,
            self._engine.topic(topic).definition,
            options,
            defaults=Options.parse(asked["defaults"]),
            command=asked["command"],
            filter_text=asked["filter"],
            order_text=asked["order_by"],
            default_pace=asked["pace"],
            resume=None if resume is None else Bookmark.parse(resume),
            counted=asked["counted"],
            by_pattern=asked["by_pattern"],
        )
        subscription = yield from self._granted(request)
        announced = asked["announced"]
        cut = self._engine.subscribe(session, name, subscription, now, announced=announced)
        yield f"cut {cut}"
        self._asked[session, name, topic] = Asked(replace(request, resume=None), options)

    def change(self, session: str, name: str, topic: str, asked: dict[str, Any], now: int) -> Lines:
        """As a PATCH does: the earlier options hold where the new ones are silent."""
        before = self._asked.get((session, name, topic))
        if before is None:
            yield "nothing to change"
            return
        options = Options.parse(asked["options"], is_change=True)
        request = replace(
            before.request,
            definition=self._engine.topic(topic).definition,
            options=options,
            earlier=before.options,
            filter_text=asked.get("filter", before.request.filter_text),
            order_text=asked.get("order_by", before.request.order_text),
        )
        subscription = yield from self._granted(request)
        self._engine.change(session, name, subscription, now)
        self._asked[session, name, topic] = Asked(request, options.over(before.options))

    def unsubscribe(self, session: str, name: str, reason: str) -> Lines:
        self._engine.unsubscribe(session, name, reason)
        yield from ()

    def _granted(self, request: Request) -> Generator[str, None, Subscription]:
        found = grant(request)
        yield f"granted {granted(found.subscription)}"
        yield f"as {found.subscription.command} warnings {len(found.warnings)}"
        return found.subscription

    # Time

    def advance(self, now: int) -> Lines:
        self._engine.advance(now)
        yield from ()

    @property
    def next_deadline(self) -> int | None:
        return self._engine.next_deadline()

    def take(self, session: str, bytes_max: int) -> tuple[list[str], bool]:
        """The lines, and whether there may be more."""
        outputs = self._engine.take(session, bytes_max)
        ends = any(isinstance(out, Goodbye) for out in outputs)
        if self._shares and not outputs:
            cohort = self._engine.enter_cohort(session, "kind")
            if cohort is not None:
                self._cohorts[cohort] = None
        lines = [line for output in outputs for line in output_lines(output)]
        return lines, bool(outputs) and not ends

    def take_all(self, sessions: Sequence[str]) -> Lines:
        """What there is for each, in the order of sessions; cohorts have taken before."""
        together = self._taken_together()
        for session in sessions:
            yield f"all of {session}"
            for output in together.get(session, ()):
                yield from output_lines(output)
            try:
                goes_on = True
                while goes_on:
                    lines, goes_on = self.take(session, PLENTY)
                    yield from lines
            except REFUSALS as error:
                yield refusal(error)

    def _taken_together(self) -> dict[str, list[Rows]]:
        """What cohorts take, for each of their sessions."""
        found: dict[str, list[Rows]] = {}
        for cohort in self._cohorts:
            while (rows := self._engine.take_together(cohort, PLENTY)) is not None:
                self.shared.append(len(cohort.members))
                for session, member in cohort.members.items():
                    found.setdefault(session, []).append(replace(rows, name=member.name))
        return found

    def announcements(self) -> list[tuple[str, dict[str, Any]]]:
        """The word of each announcement and what it says."""
        return [announcement_values(event) for event in self._engine.announcements()]

    def bring(self, wanted: dict[str, Any], piece: Sequence[Message], now: int) -> Lines:
        subscriber = (wanted["name"], wanted["topic"])
        past = HistoryWanted(wanted["session"], subscriber, wanted["epoch"], wanted["after"])
        self._engine.supply_history(past, [frame_of(one) for one in piece], now)
        yield from ()

    # Questions

    def stats(self) -> Lines:
        yield from engine_stats_lines(self._engine.stats())

    def session_stats(self, session: str) -> Lines:
        yield from session_stats_lines(self._engine.session_stats(session))
        for (name, topic), bookmark in self._engine.session(session).caught_up():
            yield f"caught up {name} {topic} {bookmark}"
        for undelivered in self._engine.session(session).unsent_endings():
            yield from output_lines(undelivered)

    def topic_stats(self, topic: str, sessions: Sequence[str]) -> Lines:
        yield topic_stats_line(self._engine.topic_stats(topic))
        yield f"crowded {sorted(self._engine.over_half_full(topic))}"
        for limits in self._engine.limits_at(topic, sessions):
            yield f"limits {limits.messages_max} {limits.bytes_max}"

    # Traces

    def trace(self, session: str, name: str, topic: str, now: int) -> Lines:
        subscriber = self._engine.session(session).subscribers.get((name, topic))
        if subscriber is None:
            yield "nothing to trace"
            return
        self._engine.leave_cohort(session)
        recorder = begin_recording(self._engine.watchers, subscriber, now, lambda: None)
        self._traces.append((recorder, Trace()))

    def read_traces(self) -> Lines:
        for number, (recorder, trace) in enumerate(self._traces):
            for call in recorder.take_calls():
                if trace.ended is None:
                    for decision in trace.decisions(call):
                        yield f"trace {number} {decision_text(decision)}"
            if trace.ended is not None:
                yield f"trace {number} ended {trace.ended}"

    def end_trace(self, number: int) -> Lines:
        yield from self.read_traces()
        if self._traces:
            recorder, _ = self._traces.pop(number % len(self._traces))
            end_recording(self._engine.watchers, recorder)


class AutoInterval:
    """The controller of `conflation=auto` over what one socket shows."""

    def __init__(self, shortest_ns: int, longest_ns: int) -> None:
        self._state = State(Auto(shortest_ns, longest_ns), shortest_ns)
        self._sent = InFlight()

    @property
    def interval_ns(self) -> int:
        return self._state.interval_ns

    def observe(self, now: int, seen: dict[str, Any]) -> Lines:
        flush_bytes = seen["flush_bytes"]
        self._sent.left(seen["unsent_bytes"])
        observation = self._sent.observed(
            now,
            self._state.interval_ns,
            round_trip_ns=seen["round_trip_ns"],
            flush_bytes=flush_bytes,
            is_full=seen["is_full"],
        )
        self._state, decision = step(self._state, observation)
        if flush_bytes:
            self._sent.wrote(now, flush_bytes)
        if decision is not None:
            told = decision.figures
            figures = (told.flush_bytes, told.unsent_bytes, told.overdue_bytes, told.drain_ns)
            rest = (told.late_rounds, told.calm_ns)
            yield f"{decision.from_ns} to {decision.to_ns} {decision.reason} {figures} {rest}"
        yield f"look {self._state.observation_due(now, seen['round_trip_ns'])}"


def _kept(kept: dict[str, Any]) -> RestoredTopic:
    records = [frame_of(message) for message in kept["records"]]
    journal = [frame_of(message) for message in kept["journal"]]
    return RestoredTopic(
        kept["head"],
        records,
        kept["horizon"],
        journal,
        kept["dropped_through"],
        kept["exempt_through"],
    )
