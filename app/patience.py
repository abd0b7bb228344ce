"""How long a stream waits for a peer that does not take what is sent to it."""

from typing import Final

LOOKS_PER_TIMEOUT: Final = 10
LOOKS_PER_FAREWELL: Final = 2
LOOK_S_MIN: Final = 0.02


class Patience:
    """Slow is not frozen: as long as a peer takes some bytes it may take its time.

    Not so one whose session was closed in the middle: it has `farewell_s` in all to take what is
    under way and its goodbye. The reason can be asked for elsewhere.

    Args:
        write_timeout_s: without a byte taken.
        farewell_s: once its session is closed.
        unsent_bytes: not taken as the wait begins.
        now_s: the time then.
    """

    def __init__(
        self, write_timeout_s: float, farewell_s: float, unsent_bytes: int, now_s: float
    ) -> None:
        look_s = min(write_timeout_s / LOOKS_PER_TIMEOUT, farewell_s / LOOKS_PER_FAREWELL)
        self.look_s = max(LOOK_S_MIN, look_s)
        self._write_timeout_s = write_timeout_s
        self._farewell_s = farewell_s
        self._unsent_bytes = unsent_bytes
        self._took_at_s = now_s
        self._closed_at_s: float | None = None

    def is_over(self, unsent_bytes: int, now_s: float, *, is_closed: bool) -> bool:
        """Looks again; to be called about every `look_s` seconds."""
        if unsent_bytes < self._unsent_bytes:
            self._took_at_s = now_s
        self._unsent_bytes = unsent_bytes
        if is_closed and self._closed_at_s is None:
            self._closed_at_s = now_s
        if self._closed_at_s is not None and now_s - self._closed_at_s >= self._farewell_s:
            return True
        return now_s - self._took_at_s >= self._write_timeout_s
