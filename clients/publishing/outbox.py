"""Messages that a publisher has taken and not yet delivered: no I/O, no clock, no waiting."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.clients.errors import PublisherStopped
from tidegate.clients.requests import Post, new_key

COUNT_MAX = 1_000
BYTES_MAX = 1 << 20
LINGER_S = 0.05  # short for a person, long enough for a few hundred messages
WAITING_BYTES_MAX = 16 << 20
DELIVERY_S = 60.0  # longer than a gateway's restart


@dataclass(frozen=True, slots=True)
class Limits:
    """When a batch is sent, and how much may wait.

    Attributes:
        count: of messages in a batch at most.
        bytes: of a batch; one message may be larger.
        linger_s: a batch that is not full is sent when its first message is so old.
        waiting_bytes: `publish` waits while so much is not delivered.
    """

    count: int = COUNT_MAX
    bytes: int = BYTES_MAX
    linger_s: float = LINGER_S
    waiting_bytes: int = WAITING_BYTES_MAX


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one request; the key makes it count once, however often it is sent."""

    lines: list[bytes]
    key: str

    @property
    def post(self) -> Post:
        """The request's body and header."""
        return Post.of(self.lines, idempotency_key=self.key)


class Outbox:
    """Messages in their order, from `publish` to the answer; one batch is on its way at a time.

    Times are seconds of any clock that never goes back.

    Attributes:
        delivered: messages that the gateway has confirmed.
        taken: messages that `add` has taken.
    """

    def __init__(self, limits: Limits) -> None:
        self.delivered = 0
        self.taken = 0
        self._limits = limits
        self._waiting: deque[tuple[bytes, float]] = deque()
        self._waiting_bytes = 0
        self._sending: Batch | None = None
        self._flush_to = 0
        self._stopped: PublisherStopped | None = None

    @property
    def has_room(self) -> bool:
        """True if another message may be added; also after a stop, of which `add` informs."""
        return self._stopped is not None or self._waiting_bytes < self._limits.waiting_bytes

    @property
    def unsent(self) -> list[bytes]:
        """The messages that no answer has confirmed, in their order."""
        sending = [] if self._sending is None else self._sending.lines
        return [*sending, *(line for line, _ in self._waiting)]

    def add(self, message: Any, now: float) -> None:
        """Take a message: a value, or its JSON text as bytes.

        Raises:
            PublisherStopped: an earlier batch could not be delivered.
            ValueError: the text has a line break, which would make two messages of it.
        """
        self.check()
        line = message if isinstance(message, bytes) else msgspec.json.encode(message)
        if b"\n" in line or b"\r" in line:
            raise ValueError("a message is one line of JSON")
        self._waiting.append((line, now))
        self._waiting_bytes += len(line)
        self.taken += 1

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
            raise self._stopped

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
        size = 0
        while self._waiting and len(lines) < self._limits.count:
            line = self._waiting[0][0]
            if lines and size + len(line) > self._limits.bytes:
                break
            lines.append(line)
            size += len(line)
            self._waiting.popleft()
        self._sending = Batch(lines, new_key())
        return self._sending

    def sent(self) -> None:
        """Record that the batch is delivered."""
        assert self._sending is not None, "nothing was sent"
        self.delivered += len(self._sending.lines)
        # Only now: what is on its way may come back as unsent.
        self._waiting_bytes -= sum(map(len, self._sending.lines))
        self._sending = None

    def failed(self, error: Exception) -> None:
        """Stop: what follows must not overtake the batch that was not delivered."""
        self._stopped = PublisherStopped(f"The publisher has stopped: {error}", self.unsent)
        self._stopped.__cause__ = error
