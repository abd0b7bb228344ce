"""The end, asked for by a signal or by a call."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING

from tidegate.pipeline.errors import EXIT_DONE, EXIT_INTERRUPTED, StreamFailed
from tidegate.pipeline.operations.supervisor import Supervisor
from tidegate.pipeline.operations.watch import StatusSink, tell

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPPING = "stopping …"


class CutOff(KeyboardInterrupt):
    """A signal has ended a block that has nothing to bring to an end.

    Attributes:
        exit_code: the command line's, as `Stop` has it.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


class Stop:
    """Whether somebody asked for the end: SIGINT or SIGTERM, or a call of `ask`."""

    def __init__(self) -> None:
        self._asked = False
        # A signal may put something in while we wait; it could not take the lock of an event.
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._cuts_off_after = 0  # so many signals; 0 where no block is to be cut off
        self.interrupted = False

    @property
    def asked(self) -> bool:
        """Whether the streams should end."""
        return self._asked

    @property
    def exit_code(self) -> int:
        """The command line's: SIGINT is an interrupt, SIGTERM is how services end."""
        return EXIT_INTERRUPTED if self.interrupted else EXIT_DONE

    def ask(self) -> None:
        """End the streams after the batch they are in."""
        self._asked = True
        self._woken.put(None)

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or at once when asked to stop."""
        if not self._asked:
            with suppress(Empty):
                self._woken.get(timeout=seconds)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take both signals while the block runs; only a main thread may."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {name: signal.getsignal(name) for name in SIGNALS}
        for name in SIGNALS:
            signal.signal(name, self._on_signal)
        try:
            yield
        finally:
            for name, action in before.items():
                signal.signal(name, action)

    @contextmanager
    def cutting_off(self, signals: int = 1) -> Iterator[None]:
        """Have a signal end the block where it stands, be it in the middle of a call.

        Args:
            signals: how many it takes; with two the block has time to come to an end by itself.

        Raises:
            CutOff: they came; or one was enough, and the end was asked for before.
        """
        self._cuts_off_after = signals
        try:
            if self.asked and signals == 1:
                raise CutOff(self.exit_code)
            yield
        except CutOff:
            raise
        except KeyboardInterrupt:  # by what somebody has put in the place of ours
            self.interrupted = True
            self.ask()
            raise CutOff(self.exit_code) from None
        finally:
            self._cuts_off_after = 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = self.interrupted or number == signal.SIGINT
        self.ask()
        if not self._cuts_off_after:
            return
        self._cuts_off_after -= 1
        if not self._cuts_off_after:  # one more does not disturb what cleans up
            raise CutOff(self.exit_code)


# Lines of a command: what it tells goes out, why it ends goes beside.


def say(line: str) -> None:
    """To standard output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    """To standard error, as the command's own."""
    sys.stderr.write(f"tidegate: {line}\n")
    sys.stderr.flush()


# How running queries end: between two batches, told about, whatever ends them.


LOOK_EVERY_S = 0.05
LAST_BATCH_SECONDS_MAX = 4.0


def stop_queries(queries: Sequence[StreamingQuery | None]) -> None:
    """Stop each query between two batches; a batch that does not end is replayed next time."""
    give_up_at = time.monotonic() + LAST_BATCH_SECONDS_MAX
    for query in queries:
        if query is None:
            continue
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < give_up_at:
            time.sleep(LOOK_EVERY_S)
        query.stop()


@contextmanager
def ending_in_order(
    stop_all: Callable[[], None], members: Sequence[Supervisor], onlookers: Sequence[StatusSink]
) -> Iterator[None]:
    """Whatever ends the block, queries end between two batches, and it is told how they stand.

    Not where a signal has cut off the start: then nothing more can be asked of Spark.
    """
    is_cut_off = False
    try:
        yield
    except CutOff:
        is_cut_off = True
        raise
    finally:
        if not is_cut_off:
            stop_all()
            for each in members:
                each.end()
            tell(members, onlookers)


@contextmanager
def outliving_its_jvm(stop: Stop) -> Iterator[None]:
    """Java may end before us, and the streams with it.

    Raises:
        StreamFailed: it did, and the end was not asked for.
    """
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, ConnectionError) as error:
        if not stop.asked:
            raise StreamFailed("Spark's Java process has ended, or refuses to go on") from error
