"""Signals request the end, while a stop listens for them."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tests.support.deadlines import HANGS_S
from tidegate.pipeline.operations.shutdown import (
    CutOff,
    Stop,
    print_error,
    print_line,
    signals_held,
)


def test_signals_ask_for_the_end_during_listening() -> None:
    before = signal.getsignal(signal.SIGTERM)
    for number, interrupted in ((signal.SIGTERM, False), (signal.SIGINT, True)):
        stop = Stop()
        with stop.listening():
            assert not stop.asked
            os.kill(os.getpid(), number)
            stop.wait(HANGS_S)
        assert (stop.asked, stop.exit_code) == (True, 130 if interrupted else 0)
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


def test_a_signal_ends_a_block_that_it_may_cut_off_once() -> None:
    stop, places = Stop(), []

    def wait_for_ever() -> None:
        with stop.cutting_off():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                places.append("went on")
            finally:
                os.kill(os.getpid(), signal.SIGINT)
                places.append("cleaned up")

    with stop.listening(), pytest.raises(CutOff):
        wait_for_ever()
    assert places == ["cleaned up"]
    assert stop.exit_code == 130


def test_a_block_that_would_be_cut_off_is_not_begun_after_the_end_was_asked_for() -> None:
    stop = Stop()
    stop.ask()
    with pytest.raises(CutOff), stop.cutting_off():
        pytest.fail("it is begun")
    assert stop.exit_code == 0


def test_an_interrupt_taken_by_a_library_counts_as_ours() -> None:
    stop = Stop()
    with pytest.raises(CutOff), stop.cutting_off():
        raise KeyboardInterrupt
    assert (stop.asked, stop.exit_code) == (True, 130)


def test_a_block_may_be_given_time_until_the_second_signal() -> None:
    stop, places = Stop(), list[object]()

    def go_on() -> None:
        with stop.cutting_off(signals=2):
            os.kill(os.getpid(), signal.SIGTERM)
            places.append(stop.asked)
            os.kill(os.getpid(), signal.SIGINT)
            places.append("went on")

    with stop.listening(), pytest.raises(CutOff):
        go_on()
    assert places == [True], "the first has asked for the end"
    assert stop.exit_code == 130


def test_lines_go_out_and_complaints_go_beside(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("so far")
    print_error("no")
    assert capsys.readouterr() == ("so far\n", "tidegate: no\n")


def test_a_signal_that_is_held_ends_nothing_before_the_block() -> None:
    stop, asked = Stop(), []

    def work() -> None:
        with signals_held():
            signal.raise_signal(signal.SIGTERM)
            asked.append(stop.asked)

    with stop.listening(), pytest.raises(CutOff), stop.cutting_off():
        work()
    assert asked == [False]
    assert stop.asked


def test_signals_are_handled_as_before_when_none_was_held() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with signals_held():
        pass
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_other_threads_hold_nothing() -> None:
    held: list[bool] = []

    def work() -> None:
        with signals_held():
            held.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert held == [True]
