"""The demo from its first line to its last, started as users start it."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.clocks.stopwatch import Stopwatch
from tests.support.commands import address_of, start
from tests.support.deadlines import HANGS_S
from tidegate.app.cli.demo.command import USUAL_PORT
from tidegate.clients.gateway import Gateway
from tidegate.clients.sse import Event

LAST = re.compile(
    r"Delivered: market ([\d,]+); machine ([\d,]+)(?:; market\.1s \(Spark\) ([\d,]+))?"
)
CLEAN_END_S_MAX = 5.0


def counts(line: str) -> list[int]:
    found = LAST.fullmatch(line)
    assert found, line
    return [int(count.replace(",", "")) for count in found.groups() if count]


def await_event(events: Iterator[Event], name: str) -> None:
    assert any(event.name == name for event in events)


@pytest.mark.system
@pytest.mark.nightly
def test_without_spark_both_feeds_deliver_at_another_port_and_it_ends_by_itself() -> None:
    started_at = time.monotonic()  # the address is read at some time after it was printed
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # in use by another process, which is as good
            taken.bind(("127.0.0.1", USUAL_PORT))
            taken.listen()
        process = start("demo", "--no-spark", "--for", "2s")
        assert not address_of(process).endswith(f":{USUAL_PORT}")
        out, err = process.communicate(timeout=HANGS_S)
    assert time.monotonic() - started_at >= 2
    assert (process.returncode, "Taking another port." in err) == (0, True), err
    market, machine = counts(out.splitlines()[-1])
    assert market > 0
    assert machine > 0


@pytest.mark.system
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 0, marks=pytest.mark.nightly),
    ],
)
def test_a_signal_ends_it_cleanly_with_streams_open(number: signal.Signals, code: int) -> None:
    process = start("demo", "--no-spark", "--port", "0")
    with Gateway(address_of(process)) as gateway:
        rows = gateway.subscribe("machine")
        await_event(rows, "message")
        await_event(gateway.subscribe("market"), "message")
        with Stopwatch(process.pid) as watch:
            process.send_signal(number)
            await_event(rows, "goodbye")
            rows.close()
            out, err = process.communicate(timeout=HANGS_S)
    assert watch.taken_s < CLEAN_END_S_MAX
    assert (process.returncode, "Traceback" in err) == (code, False), err
    assert counts(out.splitlines()[-1])
