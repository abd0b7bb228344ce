"""The state machine of lane changes: nothing is lost, repeated or late.

`engine.py` checks the time of each flush; a subscription that changes lanes may be served earlier
than its lane. What must hold in every lane is looked up in the list of all messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.support.manual_driver import PLENTY, ManualDriver, token
from tidegate.conflation.outputs import Rows

LANES = (
    "conflation=none",
    "conflation=100ms",
    "conflation=1s",
    "conflation=100ms,pace=key",
    "conflation=1s,pace=key",
)
LONGEST_NS = 1_050_000_000
PICK = st.integers(0, 11)


@dataclass
class Mover:
    """One subscription, and the newest offset of each key that it was sent."""

    session: str
    name: str
    fast: bool
    sent: dict[str, int] = field(default_factory=dict)
    delivered: int = 0
    mark: int = 0
    every_message: bool = False


class MoveMachine(RuleBasedStateMachine):
    """One keyed topic, a fast and a slow mover; limits that are never reached."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = ManualDriver()
        self.driver.topic()
        self.said: list[tuple[str, str, int]] = []
        self.movers: list[Mover] = []
        for session in ("fast", "slow"):
            self.driver.session(session, messages_max=100_000)
            name = self.driver.subscribe(LANES[1], session=session)
            self.movers.append(Mover(session, name, session == "fast"))

    @rule(letters=st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
    def publish(self, letters: list[str]) -> None:
        words = [f"{letter}{len(self.said) + number}" for number, letter in enumerate(letters)]
        self.said += [
            (letter, word, self.driver.now) for letter, word in zip(letters, words, strict=True)
        ]
        self.driver.publish(" ".join(words))
        self.look()

    @rule(pick=PICK, lane=PICK)
    def move(self, pick: int, lane: int) -> None:
        """Rule change-1."""
        mover = self.movers[pick % 2]
        wanted = self.driver.request(LANES[lane % len(LANES)])
        mover.every_message = not wanted.lane_id.interval_ns
        self.driver.engine.change(mover.session, mover.name, wanted, self.driver.now)
        self.look()

    @rule(duration=st.sampled_from(("0ms", "5ms", "60ms", "100ms", "400ms", "1s")))
    def wait(self, duration: str) -> None:
        self.driver.wait(duration)
        self.look()

    @rule(bytes_max=st.sampled_from((1, 40, PLENTY)))
    def take_a_piece(self, bytes_max: int) -> None:
        self.hear(self.movers[1], bytes_max)

    def look(self) -> None:
        """The fast mover takes all it can; the figures add up."""
        while self.hear(self.movers[0], PLENTY):
            pass
        for mover in self.movers:
            (row,) = self.driver.engine.session_stats(mover.session).subscriptions
            assert row.matched == len(self.said)
            assert row.delivered == mover.delivered
            assert row.conflated >= 0
            newest = {letter: offset for offset, (letter, _, _) in enumerate(self.said, 1)}
            behind = [letter for letter in newest if newest[letter] > mover.sent.get(letter, 0)]
            assert row.waiting >= len(behind)
        for offset, (letter, _, at) in enumerate(self.said, 1):
            if offset > self.movers[0].sent.get(letter, 0):
                assert self.driver.now <= at + LONGEST_NS, "held too long"

    def hear(self, mover: Mover, bytes_max: int) -> bool:
        outputs = self.driver.take_once(bytes_max, mover.session)
        for output in outputs:
            assert isinstance(output, Rows)
            keys = [frame.key for frame in output.batch.frames]
            assert mover.every_message or len(set(keys)) == len(keys), "one row of each key"
            for frame in output.batch.frames:
                letter, word, _ = self.said[frame.offset - 1]
                assert token(frame) == word
                assert frame.offset > mover.sent.get(letter, 0), "no repeat, no step back"
                mover.sent[letter] = frame.offset
                mover.delivered += 1
            low_water = output.batch.low_water
            if low_water is not None:
                assert mover.mark <= low_water <= len(self.said)
                mover.mark = low_water
                self.check_nothing_is_owed_below(mover, low_water)
        return bool(outputs)

    def check_nothing_is_owed_below(self, mover: Mover, low_water: int) -> None:
        """Rule resume-6: a key whose newest message is not above the id has been sent."""
        newest = {letter: offset for offset, (letter, _, _) in enumerate(self.said, 1)}
        for letter, offset in newest.items():
            assert offset > low_water or mover.sent.get(letter) == offset

    def teardown(self) -> None:
        """Rule interval-3: everybody ends with the newest of each key."""
        self.driver.wait("3s")
        self.look()
        while self.hear(self.movers[1], PLENTY):
            pass
        newest = {letter: offset for offset, (letter, _, _) in enumerate(self.said, 1)}
        for mover in self.movers:
            assert mover.sent == newest
            (row,) = self.driver.engine.session_stats(mover.session).subscriptions
            assert row.waiting == 0
