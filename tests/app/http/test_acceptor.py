"""Accepting on when file descriptors have run out."""

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deadlines import HANGS_S
from tidegate.app.http.transport.listener import ACCEPTED_IN_A_ROW_MAX, Acceptor


@pytest.fixture(name="acceptor")
def acceptor_fixture() -> Iterator[Acceptor]:
    with contextlib.closing(Acceptor(socket.AF_INET)) as acceptor:
        acceptor.bind(("127.0.0.1", 0))
        acceptor.listen(100)
        acceptor.setblocking(False)
        yield acceptor


def clients(acceptor: Acceptor, count: int) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for _ in range(count):
        stack.enter_context(socket.create_connection(acceptor.getsockname()))
    return stack


def accepted_in_a_row(acceptor: Acceptor) -> int:
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            acceptor.accept()[0].close()
            count += 1
    return count


def test_other_work_runs_between_many_connections(acceptor: Acceptor) -> None:
    with clients(acceptor, ACCEPTED_IN_A_ROW_MAX + 3):
        assert accepted_in_a_row(acceptor) == ACCEPTED_IN_A_ROW_MAX
        assert accepted_in_a_row(acceptor) == 3
        assert accepted_in_a_row(acceptor) == 0


def test_one_is_accepted_at_a_time_while_many_wait(acceptor: Acceptor) -> None:
    """Else a storm of them would wait here, with a parser and a buffer each."""
    crowd = 1
    acceptor.crowd = lambda: crowd
    with clients(acceptor, ACCEPTED_IN_A_ROW_MAX + 1):
        assert accepted_in_a_row(acceptor) == ACCEPTED_IN_A_ROW_MAX - 1
        crowd = 100
        assert [accepted_in_a_row(acceptor) for _ in range(3)] == [1, 1, 0]


def test_without_descriptors_connections_are_closed_until_there_are_some_again(
    acceptor: Acceptor, caplog: pytest.LogCaptureFixture
) -> None:
    with clients(acceptor, 3) as stack, no_descriptors():
        for _ in range(3):
            with pytest.raises(BlockingIOError):
                acceptor.accept()
        with pytest.raises(BlockingIOError):
            acceptor.accept()  # nobody is left waiting
        stack.close()
    assert len(caplog.records) == 1
    with clients(acceptor, 2):
        assert accepted_in_a_row(acceptor) == 2


def test_turned_away_means_an_end_and_no_silence(acceptor: Acceptor) -> None:
    with socket.create_connection(acceptor.getsockname(), timeout=HANGS_S) as client:
        with no_descriptors(), pytest.raises(BlockingIOError):
            acceptor.accept()
        assert client.recv(1) == b""


def test_other_errors_stay_what_they_are(acceptor: Acceptor) -> None:
    acceptor.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        acceptor.accept()
    acceptor.close()  # once more does no harm


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Every descriptor of this process is in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(number.name) for number in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    held = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for number in held:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
