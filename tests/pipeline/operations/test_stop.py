"""The end is asked for by signals, while somebody listens."""

from __future__ import annotations

import os
import signal
import threading

from pipeline.operations.stop import Stop


def test_signals_ask_for_the_end_while_somebody_listens() -> None:
    before = signal.getsignal(signal.SIGTERM)
    for number, interrupted in ((signal.SIGTERM, False), (signal.SIGINT, True)):
        stop = Stop()
        with stop.listening():
            assert not stop.asked
            os.kill(os.getpid(), number)
            stop.wait(10)
        assert (stop.asked, stop.interrupted) == (True, interrupted)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_call_asks_as_well_and_other_threads_take_no_signals() -> None:
    stop, seen = Stop(), []

    def listen() -> None:
        with stop.listening():
            stop.ask()
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert (stop.asked, seen) == (True, [before])
