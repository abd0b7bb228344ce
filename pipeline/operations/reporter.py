"""Tells the gateway how streams stand: messages of its topic `tidegate.pipelines`.

A thread of its own does it, so that a gateway which is out holds nobody up. Only the newest counts:
what could not be told is not told later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from pipeline.errors import GatewayRefused, PipelineError
from pipeline.gateway import Gateway
from pipeline.operations.condition import Condition
from pipeline.operations.supervised import Say

TOPIC = "tidegate.pipelines"
PRODUCER_PREFIX = "tidegate.pipeline."
ERROR_CHARACTERS_MAX = 1_000
GOODBYE_SECONDS_MAX = 2.0
MS_PER_S = 1_000


class Reporter:
    """Tells one gateway; `say` is told once if it wants to hear nothing.

    Raises:
        UsageInvalid: that is no address of one.
    """

    def __init__(self, gateway: str, say: Say) -> None:
        self._gateway = Gateway(gateway, patience_s=0.0)
        self._say = say
        self._newest: Sequence[Condition] = ()
        self._woken = threading.Event()
        self._ended = False

    def tell(self, conditions: Sequence[Condition]) -> None:
        """Tell of these as soon as may be, and of none before; returns at once."""
        self._newest = conditions
        self._woken.set()

    def end(self) -> None:
        """Tell the newest once more, then no more."""
        self._ended = True
        self._woken.set()

    def run(self) -> None:
        """Tell whenever there is something new, until ended."""
        with self._gateway as gateway:
            is_last = False
            while not is_last:
                self._woken.wait()
                self._woken.clear()
                is_last = self._ended
                try:
                    for condition in self._newest:
                        gateway.report(TOPIC, *message_of(condition))
                except GatewayRefused as error:
                    self._say(f"the gateway is not told how streams stand: {error}")
                    return
                except PipelineError:
                    continue  # out of order: the next time counts


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Have it told while the block runs; a gateway that hangs does not hold up the end."""
    thread = threading.Thread(target=reporter.run, name="tell the gateway", daemon=True)
    thread.start()
    try:
        yield
    finally:
        reporter.end()
        thread.join(GOODBYE_SECONDS_MAX)


def message_of(now: Condition) -> tuple[str, int, bytes]:
    """As whom it is told, under which number, and the message.

    The number is the time in ms: a command that is started again goes on above its last one.
    """
    at_ms = int(now.at_s * MS_PER_S)
    document = {
        "pipeline": now.name,
        "state": now.state.value,
        "batch": now.pace.batch,
        "batches": now.batches,
        "messages": now.messages,
        "published": now.published,
        "dead_letters": now.refused,
        "rows_per_s": round(now.pace.rows_per_s, 3),
        "batch_s": now.pace.batch_s,
        "lag": now.pace.lag,
        "held_keys": now.held,
        "restarts": now.restarts,
        "error": now.error[:ERROR_CHARACTERS_MAX],
        "at_ms": at_ms,
    }
    return f"{PRODUCER_PREFIX}{now.name}.state", at_ms, msgspec.json.encode(document)
