"""Messages that a publisher has taken and not yet delivered: no I/O, no clock, no waiting."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from tidegate.clients import BODY_BYTES_MAX
from tidegate.clients.errors import GatewayError, PublisherStopped, without_traceback
from tidegate.clients.message import line_of
from tidegate.clients.requests import Post, new_key

COUNT_MAX = 1_000
LINGER_S = 0.05  # short for a person, long enough for a few hundred messages
WAITING_BYTES_MAX = 16 << 20
DELIVERY_S = 60.0  # longer than a gateway's restart


@dataclass(frozen=True, slots=True)
class Limits:
    """When a batch is sent, and how much may wait.

    Attributes:
        count: the most messages in a batch.
        bytes: the most bytes in a batch; one message may be larger.
        linger_s: a batch that is not full is sent when its first message is so old.
        waiting_bytes: `publish` waits while so much is not delivered.
    """

    count: int = COUNT_MAX
    bytes: int = BODY_BYTES_MAX
    linger_s: float = LINGER_S
    waiting_bytes: int = WAITING_BYTES_MAX


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one request; its key makes it count once, however often it is sent."""

    lines: list[bytes]
    post: Post


class Outbox:
    """Messages in their order, from `publish` to the answer; one batch is in flight at a time.

    Times are seconds of any clock that never goes back.

    With a producer each message has a number. The first one is sent in its own batch: if the
    gateway knows its number, it answers with the highest, and nothing up to that is sent.

    Attributes:
        delivered: messages that the gateway has confirmed.
        taken: messages that `add` has taken.
    """

    def __init__(self, limits: Limits, producer: str | None = None) -> None:
        self.delivered = 0
        self.taken = 0
        self._limits = limits
        self._producer = producer
        self._last: int | None = None  # number of the last message taken
        self._highest: int | None = None  # that the gateway knew; None before its first answer
        self._waiting: deque[tuple[bytes, float, int | None]] = deque()
        self._waiting_bytes = 0
        self._sending: Batch | None = None
        self._flush_to = 0
        self._stopped: PublisherStopped | None = None

    def emptied(self) -> Outbox:
        """Return another one with the same limits, for a forked process.

        Raises:
            ValueError: it has a producer, whose numbers belong to one process.
        """
        if self._producer is not None:
            raise ValueError("a publisher with a producer works only in the process that made it")
        return Outbox(self._limits)

    @property
    def has_room(self) -> bool:
        """True if another message may be added; also after a stop, which `add` then raises."""
        return self._stopped is not None or self._waiting_bytes < self._limits.waiting_bytes

    @property
    def unsent(self) -> list[bytes]:
        """The messages that no answer has confirmed, in their order."""
        sending = [] if self._sending is None else self._sending.lines
        return [*sending, *(line for line, *_ in self._waiting)]

    def add(self, message: Any, now: float, sequence: int | None = None) -> None:
        """Take a message: a value, or its JSON text as bytes.

        Raises:
            PublisherStopped: an earlier batch could not be delivered.
            ValueError, TypeError: as `line_of`; or the sequence does not rise, or it is given
                without a producer, or missing with one.
        """
        self.check()
        if (sequence is None) is not (self._producer is None):
            raise ValueError("with a producer each message needs a sequence, without one none has")
        if sequence is not None and self._last is not None and sequence <= self._last:
            raise ValueError(f"sequence {sequence} is not above {self._last}")
        line = line_of(message)
        self._waiting.append((line, now, sequence))
        self._waiting_bytes += len(line)
        self._last = sequence
        self.taken += 1
        self._skip_known()

    def flush(self) -> int:
        """Make all that was taken due; return the count of `delivered` that says it is done."""
        self._flush_to = self.taken
        return self.taken

    def check(self) -> None:
        """Raise what stopped the publisher, if anything did.

        Raises:
            PublisherStopped: a batch could not be delivered.
        """
        if self._stopped is not None:
            raise without_traceback(self._stopped)

    def due_s(self, now: float) -> float | None:
        """Return the seconds until a batch is due; 0 if one is, None if nothing waits."""
        if self._sending is not None or not self._waiting or self._stopped is not None:
            return None
        full = len(self._waiting) >= self._limits.count or self._waiting_bytes >= self._limits.bytes
        if full or self._flush_to > self.delivered:
            return 0.0
        return max(0.0, self._waiting[0][1] + self._limits.linger_s - now)

    def next(self, now: float) -> Batch | None:
        """Return the batch that is due, to be answered by `sent` or `failed`; None without one."""
        if self.due_s(now) != 0.0:
            return None
        lines: list[bytes] = []
        size, sequence = 0, None
        count_max = 1 if self._producer and self._highest is None else self._limits.count
        while self._waiting and len(lines) < count_max:
            line = self._waiting[0][0]
            if lines and size + len(line) > self._limits.bytes:
                break
            lines.append(line)
            size += len(line)
            sequence = self._waiting.popleft()[2]
        key = new_key()
        post = Post.of(lines, producer=self._producer, sequence=sequence, idempotency_key=key)
        self._sending = Batch(lines, post)
        return self._sending

    def sent(self, highest: int | None = None) -> None:
        """Record the answer; `highest` of the producer where the batch's number was known."""
        assert self._sending is not None, "nothing was sent"
        if highest is not None and self._highest is not None:
            self.failed(GatewayError(f"another writer publishes as {self._producer}"))
            return
        # Only now: a batch in flight may turn out as unsent.
        self._confirm(self._sending.lines)
        self._sending = None
        if self._highest is None:
            self._highest = -1 if highest is None else highest
            self._skip_known()

    def _skip_known(self) -> None:
        highest = -1 if self._highest is None else self._highest
        while self._waiting and (self._waiting[0][2] or 0) <= highest:
            self._confirm([self._waiting.popleft()[0]])

    def _confirm(self, lines: list[bytes]) -> None:
        self.delivered += len(lines)
        self._waiting_bytes -= sum(map(len, lines))

    def failed(self, error: Exception) -> None:
        """Stop: what follows must not overtake the batch that was not delivered."""
        self._stopped = PublisherStopped(f"The publisher has stopped: {error}", self.unsent)
        self._stopped.__cause__ = without_traceback(error)
