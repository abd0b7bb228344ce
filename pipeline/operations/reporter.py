"""Tells the gateway how streams stand: messages of its topic `tidegate.pipelines`.

A thread of its own does it, so that a gateway which is out holds nobody up. Only the newest counts:
what could not be told is not told later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from tidegate.clients.errors import GatewayError
from tidegate.clients.transport import JSON
from tidegate.pipeline.connection import AT_ONCE, gateway_at, pipeline_error
from tidegate.pipeline.errors import GatewayRefused
from tidegate.pipeline.operations.status import StreamStatus
from tidegate.pipeline.operations.supervisor import Say

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
        self._address = gateway
        self._opened = ExitStack()
        self._gateway = self._opened.enter_context(gateway_at(gateway, AT_ONCE))
        self._say = say
        self._newest: Sequence[StreamStatus] = ()
        self._woken = threading.Event()
        self._ended = False

    def tell(self, conditions: Sequence[StreamStatus]) -> None:
        """Tell of these as soon as may be, and of none before; returns at once."""
        self._newest = conditions
        self._woken.set()

    def end(self) -> None:
        """Tell the newest once more, then no more."""
        self._ended = True
        self._woken.set()

    def run(self) -> None:
        """Tell whenever there is something new, until ended."""
        with self._opened:
            is_last = False
            while not is_last:
                self._woken.wait()
                self._woken.clear()
                is_last = self._ended
                try:
                    for condition in self._newest:
                        producer, number, message = message_of(condition)
                        self._gateway.publish_body(TOPIC, message, producer, number, JSON)
                except GatewayError as error:
                    refusal = pipeline_error(error, self._address)
                    if isinstance(refusal, GatewayRefused):
                        self._say(f"the gateway is not told how streams stand: {refusal}")
                        return
                    # It is out of order: the next time counts.


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


def message_of(now: StreamStatus) -> tuple[str, int, bytes]:
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
