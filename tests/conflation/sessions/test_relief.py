"""A full queue, in its three steps: send, conflate, close."""

import pytest

from conflation.definition import Definition, QueuePolicy
from conflation.engine import Engine
from conflation.frame import Frame
from conflation.language.grant import decide
from conflation.language.options import Options
from conflation.log import History
from conflation.outputs import CloseReason, Goodbye, Rows, SessionClosed
from conflation.sessions.session import QueueLimits
from keys.spec import KeySpec

SPEC = KeySpec.of(["/t"])


class Gate:
    """Sessions that want every message of topic `p`, at most four of them waiting."""

    def __init__(self, policy: QueuePolicy, *sessions: str, bytes_max: int = 1 << 20) -> None:
        self.engine = Engine(sessions_max=9, subscriptions_max=9)
        self.engine.define_topic("p", Definition(History(99), SPEC, policy), "e")
        self.offset = 0
        for session in sessions:
            self.engine.open_session(session, QueueLimits(4, bytes_max))
            wish = decide(
                "p", Definition(History(100), SPEC), Options.parse(""), command="subscribe"
            )
            self.engine.subscribe(session, "s", wish, 0)

    def publish(self, names: str, size: int = 1) -> None:
        frames = [
            Frame(self.offset + at, name.encode() * size, name)
            for at, name in enumerate(names, start=1)
        ]
        self.offset += len(frames)
        self.engine.publish("p", frames, 0)
        self.engine.advance(0)

    def take(self, session: str) -> str:
        taken = iter(lambda: self.engine.take(session, 1 << 20), [])
        rows = [out for outputs in taken for out in outputs if isinstance(out, Rows)]
        return "".join(frame.payload[:1].decode() for out in rows for frame in out.batch.frames)

    def closed(self) -> dict[str, CloseReason | None]:
        events = self.engine.events()
        return {e.session: e.reason for e in events if isinstance(e, SessionClosed)}


def test_what_was_sent_is_not_in_the_queue() -> None:
    gate = Gate(QueuePolicy.OFF, "a")
    for _ in range(5):
        gate.publish("ABAB")
        assert gate.take("a") == "ABAB"
    assert gate.closed() == {}


def test_a_full_queue_is_conflated_whole() -> None:
    gate = Gate(QueuePolicy.CONFLATE, "a")
    gate.publish("ABAC")
    gate.publish("B")
    assert gate.take("a") == "ACB"
    gate.publish("ABAB")
    assert gate.take("a") == "ABAB"


def test_what_policy_off_keeps_closes_the_session() -> None:
    gate = Gate(QueuePolicy.OFF, "a", "b")
    gate.publish("ABAB")
    assert gate.take("b") == "ABAB"
    gate.publish("A")
    assert gate.closed() == {"a": CloseReason.QUEUE_LIMIT}
    assert gate.engine.take("a", 1) == [Goodbye(CloseReason.QUEUE_LIMIT)]
    assert gate.take("b") == "A"


def test_more_keys_than_may_wait_close_the_session() -> None:
    gate = Gate(QueuePolicy.CONFLATE, "a")
    gate.publish("ABCDE")
    assert gate.closed() == {"a": CloseReason.QUEUE_LIMIT}


@pytest.mark.parametrize(("size", "is_closed"), [(25, False), (26, True)])
def test_bytes_count_as_messages_do(size: int, is_closed: bool) -> None:
    gate = Gate(QueuePolicy.OFF, "a", bytes_max=100)
    gate.publish("ABAB", size=size)
    assert bool(gate.closed()) is is_closed


def test_who_is_half_full_is_crowded() -> None:
    gate = Gate(QueuePolicy.CONFLATE, "a", "b")
    gate.publish("AB")
    assert gate.engine.crowded("p") == set()
    gate.publish("A")
    gate.take("b")
    assert gate.engine.crowded("p") == {"a"}
