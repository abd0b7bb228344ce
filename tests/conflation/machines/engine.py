"""The state machine of the whole engine: topics, sessions and limits that come and go.

It compares the engine with the naive model of tests/support/models/engine_lockstep.py after every
call. Its lanes use few options; `language.py` covers the others.
"""

from __future__ import annotations

import json

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.models.boards import MILLISECOND
from tests.support.models.engine_lockstep import PLENTY, EngineLockstep
from tests.support.models.engine_model import LaneSpec, Replica
from tidegate.conflation.outputs import CloseReason

SECOND = 1_000 * MILLISECOND
TOPICS = {"px": ("k", "g"), "log": ()}
EVERY_MESSAGE = LaneSpec("conflation=none")
KEYED = (
    EVERY_MESSAGE,
    LaneSpec("conflation=100ms", 100 * MILLISECOND),
    LaneSpec("conflation=1s", SECOND, counted=True),
    LaneSpec("conflation=1s,pace=key", SECOND, pace="key", counted=True),
    LaneSpec("conflation=70ms,pace=key", 70 * MILLISECOND, pace="key"),
    LaneSpec("conflation=1s,conflation_key=[/k]", SECOND, ("k",)),
    EVERY_MESSAGE,
    LaneSpec("conflation=100ms,conflation_key=[/c],pace=key", 100 * MILLISECOND, ("c",), "key"),
)
PLAIN = (
    EVERY_MESSAGE,
    LaneSpec("conflation=1s,conflation_key=[/k]", SECOND, ("k",)),
    LaneSpec("conflation=70ms,conflation_key=[/c,/k],pace=key", 70_000_000, ("c", "k"), "key"),
    LaneSpec("conflation=100ms,conflation_key=[/none]", 100 * MILLISECOND, ("none",)),
)
LIMITS = ((8, PLENTY), (1_000, 700), (3, PLENTY), (12, PLENTY))
STEPS_NS = tuple(round(ms * MILLISECOND) for ms in (0, 1, 3.5, 49, 100, 333, 1_000))

PICK = st.integers(0, 11)
STEP = st.sampled_from(STEPS_NS)
LETTERS = st.lists(st.integers(0, 35), min_size=1, max_size=5)


class EngineMachine(RuleBasedStateMachine):
    """Topics px (keyed by k and g) and log (plain), and up to four sessions, fast and slow."""

    def __init__(self) -> None:
        super().__init__()
        self.lockstep = EngineLockstep()

    @initialize(
        off=st.sets(st.sampled_from(list(TOPICS))),
        kept_max=st.sampled_from((1_000, 8)),
        limits=PICK,
        lane_specs=st.lists(st.tuples(PICK, st.booleans(), PICK), min_size=1, max_size=6),
    )
    def begin(
        self, off: set[str], kept_max: int, limits: int, lane_specs: list[tuple[int, bool, int]]
    ) -> None:
        """A fast taker and two slow ones with some subscriptions."""
        for name, fields in TOPICS.items():
            self.lockstep.define(name, fields, "off" if name in off else "conflate", kept_max)
        self.lockstep.open_session(True, (1_000, PLENTY))
        self.open_session(False, limits)
        self.open_session(False, limits + 1)
        for session, plain, lane_spec in lane_specs:
            self.subscribe(session, plain, lane_spec, 0)

    @precondition(lambda self: len(self.lockstep.sessions) < 2 or self.rarely())
    @rule(fast=st.booleans(), pick=PICK)
    def open_session(self, fast: bool, pick: int) -> None:
        self.lockstep.open_session(fast, LIMITS[pick % len(LIMITS)])

    @rule(bursts=st.lists(st.tuples(st.booleans(), LETTERS, STEP), min_size=1, max_size=6))
    def traffic(self, bursts: list[tuple[bool, list[int], int]]) -> None:
        """Messages with time in between, every deadline served as it comes."""
        for plain, letters, step_ns in bursts:
            self.publish(plain, letters)
            self.lockstep.serve()
            self.lockstep.advance(step_ns)

    @rule(plain=st.booleans(), letters=LETTERS, late_ns=STEP)
    def publish_late(self, plain: bool, letters: list[int], late_ns: int) -> None:
        """A driver that is late publishes before it serves what has fallen due."""
        self.lockstep.now += late_ns
        self.publish(plain, letters)

    @rule(session=PICK, plain=st.booleans(), lane_spec=PICK, command=PICK)
    def subscribe(self, session: int, plain: bool, lane_spec: int, command: int) -> None:
        commands = ("subscribe",) if plain else ("subscribe", "sow_and_subscribe", "sow")
        chosen = commands[command % len(commands)]
        self.join(session, "log" if plain else "px", lane_spec_of(plain, lane_spec), chosen)

    @precondition(lambda self: self.lockstep.all_subscribers() and self.rarely(2))
    @rule(session=PICK, pick=PICK, letters=LETTERS)
    def join_a_busy_lane(self, session: int, pick: int, letters: list[int]) -> None:
        """Somebody joins a lane that holds something."""
        found = self.lockstep.all_subscribers()
        _, other = found[pick % len(found)]
        self.publish(not other.topic.key, letters)
        self.join(session, other.topic.name, other.lane_spec, "subscribe")

    @precondition(lambda self: self.lockstep.marks and self.rarely(3))
    @rule(session=PICK, mark=st.integers(0, 40))
    def resume(self, session: int, mark: int) -> None:
        """A client comes back with the last id that it saw, and what it held then."""
        seen = self.lockstep.marks[mark % len(self.lockstep.marks)]
        place = (seen.epoch, seen.offset)
        self.join(session, seen.topic, seen.lane_spec, "subscribe", place, seen.replica.copy())

    @precondition(lambda self: self.rarely())
    @rule(session=PICK, plain=st.booleans(), lane_spec=PICK, offset=st.integers(0, 40), ours=PICK)
    def resume_anywhere(
        self, session: int, plain: bool, lane_spec: int, offset: int, ours: int
    ) -> None:
        """A client comes with a bookmark of which it holds nothing, real or made up."""
        name = "log" if plain else "px"
        place = (self.lockstep.topics[name].epoch if ours else "strange", offset)
        self.join(session, name, lane_spec_of(plain, lane_spec), "subscribe", place)

    @precondition(lambda self: len(self.lockstep.all_subscribers()) > 2 or self.rarely())
    @rule(pick=PICK)
    def unsubscribe(self, pick: int) -> None:
        if found := self.lockstep.all_subscribers():
            self.lockstep.unsubscribe(*found[pick % len(found)])

    @precondition(lambda self: self.lockstep.sessions and self.rarely())
    @rule(pick=PICK, reason=st.sampled_from((None, CloseReason.SHUTDOWN)))
    def close(self, pick: int, reason: CloseReason | None) -> None:
        sessions = list(self.lockstep.sessions.values())
        self.lockstep.close(sessions[pick % len(sessions)], reason)

    @precondition(lambda self: self.rarely())
    @rule(plain=st.booleans(), conflates=st.booleans(), kept_max=st.integers(1, 30), drop=PICK)
    def redefine(self, plain: bool, conflates: bool, kept_max: int, drop: int) -> None:
        """A new policy and history; now and then the topic goes first and comes back empty."""
        name = "log" if plain else "px"
        if drop < 3:
            self.lockstep.drop(name)
        self.lockstep.define(name, TOPICS[name], "conflate" if conflates else "off", kept_max)
        self.lockstep.check()

    @rule(step_ns=STEP)
    def advance(self, step_ns: int) -> None:
        self.lockstep.advance(step_ns)

    @rule(step_ns=STEP)
    def advance_late(self, step_ns: int) -> None:
        """All that fell due meanwhile at once."""
        self.lockstep.now += step_ns
        self.lockstep.serve()

    @precondition(lambda self: self.lockstep.model_deadline() is not None and self.rarely(2))
    @rule(early_ns=st.sampled_from((0, 0, 1)))
    def advance_to_deadline(self, early_ns: int) -> None:
        deadline = self.lockstep.model_deadline()
        assert deadline is not None
        self.lockstep.now = max(self.lockstep.now, deadline - early_ns)
        self.lockstep.serve()

    @precondition(lambda self: self.lockstep.sessions)
    @rule(pick=PICK, bytes_max=st.sampled_from((1, 60, 150, 400, PLENTY)))
    def take_a_piece(self, pick: int, bytes_max: int) -> None:
        sessions = list(self.lockstep.sessions.values())
        self.lockstep.take(sessions[pick % len(sessions)], bytes_max)
        self.lockstep.check()

    @precondition(lambda self: self.rarely())
    @rule()
    def settle(self) -> None:
        self.lockstep.settle()

    def teardown(self) -> None:
        self.lockstep.settle()
        self.lockstep.replay()

    # --- small things -----------------------------------------------------------------------------

    def join(
        self,
        session_pick: int,
        name: str,
        lane_spec: LaneSpec,
        command: str,
        place: tuple[str, int] | None = None,
        replica: Replica | None = None,
    ) -> None:
        sessions = list(self.lockstep.sessions.values())
        if sessions:
            session = sessions[session_pick % len(sessions)]
            topic = self.lockstep.topics[name]
            self.lockstep.join(session, topic, lane_spec, command, place, replica)

    def publish(self, plain: bool, letters: list[int]) -> None:
        payloads = [self.payload(letter) for letter in letters]
        self.lockstep.publish("log" if plain else "px", payloads)

    def payload(self, letter: int) -> bytes:
        """A message of one of few keys; some are longer than others."""
        serial = self.lockstep.fresh("")
        fields = {"k": "abc"[letter % 3], "g": "XY"[letter // 3 % 2], "v": serial}
        if letter // 6 % 3:
            fields["c"] = str(letter // 6 % 3)
        return json.dumps({**fields, "p": "x" * (letter // 18 * 60)}).encode()

    def rarely(self, one_in: int = 8) -> bool:
        """Whether it is the turn of something that happens seldom."""
        return len(self.lockstep.calls) % one_in == 0


def lane_spec_of(plain: bool, pick: int) -> LaneSpec:
    """One of the options that a topic with or without key can be asked with."""
    table = PLAIN if plain else KEYED
    return table[pick % len(table)]
