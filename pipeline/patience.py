"""Asking again, with growing pauses, what may be answered in a moment."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from pipeline.errors import PipelineError

PATIENCE_S = 60.0
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0

Answer = TypeVar("Answer")


class Trouble(Exception):
    """What may be over soon; `error` is what to tell if it is not."""

    def __init__(self, error: PipelineError) -> None:
        super().__init__(str(error))
        self.error = error


class Waiting:
    """How the time passes until the same is asked again: in silence."""

    def begins(self, trouble: PipelineError, patience_s: float) -> None:
        """Something is in trouble for the first time; it is tried for so long."""

    def pause(self, seconds: float) -> None:
        """Return after so long; what is raised here ends the waiting."""
        time.sleep(seconds)


class Impatience(Waiting):
    """Does not wait: whoever asks comes again by himself."""

    def begins(self, trouble: PipelineError, patience_s: float) -> None:
        """Tell it at once.

        Raises:
            PipelineError: the trouble.
        """
        raise trouble


IN_SILENCE = Waiting()
AT_ONCE = Impatience()


def patiently(
    ask: Callable[[], Answer], patience_s: float, waiting: Waiting = IN_SILENCE
) -> Answer:
    """What `ask` answers; asked again for so many seconds while it raises `Trouble`.

    Raises:
        PipelineError: of the last trouble.
    """
    give_up_at = time.monotonic() + patience_s
    pause_s, is_first = BACKOFF_FIRST_S, True
    while True:
        try:
            return ask()
        except Trouble as trouble:
            # Jitter keeps many tasks from knocking at the same moment after an outage.
            wait_s = pause_s * random.uniform(0.5, 1.0)
            if time.monotonic() + wait_s > give_up_at:
                raise trouble.error from trouble
            if is_first:
                waiting.begins(trouble.error, patience_s)
        is_first = False
        waiting.pause(wait_s)
        pause_s = min(pause_s * 2, BACKOFF_MAX_S)
