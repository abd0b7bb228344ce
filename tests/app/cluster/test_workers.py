"""Workers: started together, started again when they die, stopped together, never orphaned."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

import dev
from tests.support.deadlines import HANGS_S

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked"),
]

PARENT = """
import os, select, signal, sys, time
from tidegate.app.cluster.workers import Workers
stopped = []
def say(word):
    os.write(1, f"{word} {os.getpid()}\\n".encode())
def work(line):
    say("worker")
    if %(first)r.isdigit():
        return int(%(first)r)
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    signal.signal(signal.SIGINT, lambda number, frame: stopped.append(number))
    line.report_ready()
    while not stopped or %(deaf)r:
        if select.select([line.parent], [], [], 0.02)[0]:
            say("orphan")
            return 0
    return 0
class Stopped(Workers):
    def _start(self, worker):
        super()._start(worker)
        if worker.pid:
            say("start")
        os.kill(os.getpid(), signal.SIGTERM)  # heeded before the next one has its turn
kind = Stopped if %(first)r == "stopped" else Workers
workers = kind(2, work, grace_s=%(grace_s)r, on_ready=lambda: say("ready"))
sys.exit(workers.run())
"""


class Parent:
    """A process with two workers, and what they say."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def heard(self, word: str) -> int:
        """The process that says this next."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said, pid = line.split()
            if said == word:
                return int(pid)
        raise AssertionError(f"nobody says {word}")

    def ended(self) -> int:
        return self.process.wait(timeout=HANGS_S)


@contextlib.contextmanager
def parent(first: str = "", grace_s: float = 1, *, deaf: bool = False) -> Iterator[Parent]:
    script = PARENT % {"first": first, "grace_s": grace_s, "deaf": deaf}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=dev.ROOT
    )
    try:
        yield Parent(process)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_stops_all(number: signal.Signals, status: int) -> None:
    with parent() as made:
        pids = {made.heard("worker"), made.heard("worker")}
        assert made.heard("ready") == made.process.pid
        assert len(pids) == 2
        made.process.send_signal(number)
        assert made.ended() == status
        assert not any(is_there(pid) for pid in pids)


def test_a_signal_between_two_starts_leaves_none_that_has_not_heard_it() -> None:
    with parent("stopped") as made:
        assert made.ended() == 0
        assert made.process.stdout is not None
        assert made.process.stdout.read().count("start") == 1


def test_a_dead_worker_is_replaced_and_readiness_is_reported_once() -> None:
    with parent() as made:
        made.heard("ready")
        made_again: set[int] = set()
        for _ in range(2):
            pid = next(iter(children(made.process.pid) - made_again))
            os.kill(pid, signal.SIGKILL)
            made_again.add(made.heard("worker"))
        made.process.terminate()
        assert made.ended() == 0
        assert made.process.stdout is not None
        assert "ready" not in made.process.stdout.read()


def children(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children()}


def test_workers_do_not_outlive_their_parent() -> None:
    with parent() as made:
        made.heard("ready")
        made.process.kill()
        assert made.heard("orphan") != made.heard("orphan")


@pytest.mark.parametrize("status", [78, 3])
def test_what_cannot_be_served_is_not_tried_again(status: int) -> None:
    """Wrong settings, and a Redis that does not answer."""
    with parent(str(status)) as made:
        assert made.ended() == status


def test_who_does_not_stop_is_killed() -> None:
    with parent(grace_s=-4.5, deaf=True) as made:
        pids = {made.heard("worker"), made.heard("worker")}
        made.heard("ready")
        made.process.terminate()
        assert made.ended() == 0
        assert not any(is_there(pid) for pid in pids)
