"""Group send: one text to many sockets, over io_uring and without."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tidegate.app.streams import group_send
from tidegate.app.streams.group_send import (
    ENTRIES,
    SOCKETS_MIN,
    GroupSend,
    SendRing,
    send_each,
)

TEXT = b"data: 1\n\n"
Pairs = list[tuple[socket.socket, socket.socket]]
Enter = Callable[..., None]
LARGE = b"x" * (4 << 20)  # more than any socket holds


@pytest.fixture(params=[True, False], ids=["in-one-call", "call-by-call"])
def send(request: pytest.FixtureRequest) -> GroupSend:
    """Return each way in turn; a kernel that refuses io_uring shows the second one twice."""
    return GroupSend(io_uring=request.param)


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    with ExitStack() as stack:
        made = [socket.socketpair() for _ in range(ENTRIES + 50)]
        for near, far in made:
            near.setblocking(False)
            far.setblocking(False)
            stack.callback(near.close)
            stack.callback(far.close)
        yield made


def received_bytes(far: socket.socket) -> int:
    count = 0
    while True:
        try:
            count += len(far.recv(1 << 20))
        except BlockingIOError:
            return count


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def near_ends(pairs: Pairs) -> list[socket.socket]:
    return [near for near, _ in pairs]


@pytest.mark.parametrize("sockets", [0, 1, SOCKETS_MIN, 100, ENTRIES, ENTRIES + 50])
def test_each_socket_gets_the_text_once(send: GroupSend, pairs: Pairs, sockets: int) -> None:
    assert send(near_ends(pairs[:sockets]), TEXT) == [len(TEXT)] * sockets
    for _, far in pairs[:sockets]:
        assert far.recv(1 << 16) == TEXT
    for _, far in pairs[sockets:]:
        with pytest.raises(BlockingIOError):
            far.recv(1)


def test_calls_follow_one_another_around_the_ring(send: GroupSend, pairs: Pairs) -> None:
    sent = [b""] * len(pairs)
    for number in range(40):
        first = 7 * number % 90
        end = min(first + 60 + 11 * number, first + ENTRIES, len(pairs))
        text = b"%d;" % number
        assert send(near_ends(pairs[first:end]), text) == [len(text)] * (end - first)
        sent[first:end] = [before + text for before in sent[first:end]]
    for (_, far), text in zip(pairs, sent, strict=True):
        if text:
            assert far.recv(1 << 16) == text


def test_a_socket_that_takes_less_says_how_much(send: GroupSend, pairs: Pairs) -> None:
    full, gone, closed = 3, 5, 11
    while sum(send_each([pairs[full][0]], LARGE)):
        pass
    pairs[gone][1].close()
    pairs[closed][0].close()
    taken_bytes = send(near_ends(pairs[:40]), TEXT)
    assert [at for at, taken in enumerate(taken_bytes) if not taken] == [full, gone, closed]
    assert set(taken_bytes) == {0, len(TEXT)}
    for (_, far), taken in zip(pairs[40:60], send(near_ends(pairs[40:60]), LARGE), strict=True):
        assert 0 < taken < len(LARGE)
        assert received_bytes(far) == taken


def test_a_closed_socket_writes_to_no_other_that_got_its_number(
    send: GroupSend, pairs: Pairs
) -> None:
    sockets = near_ends(pairs[:40])
    send(sockets, TEXT)
    number = sockets[7].fileno()
    with ExitStack() as stack:
        made, far = map(stack.enter_context, socket.socketpair())
        sockets[7].close()
        # By name: the kernel would give the lowest free number, which need not be this one.
        other = stack.enter_context(socket.socket(fileno=os.dup2(made.fileno(), number)))
        assert other.fileno() == number
        far.setblocking(False)
        assert send(sockets, TEXT)[7] == 0
        with pytest.raises(BlockingIOError):
            far.recv(1)


def test_io_uring_sends_a_whole_turn_at_once(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    send = GroupSend(io_uring=True)
    alone: list[int] = []

    def noted(sockets: Sequence[socket.socket], text: bytes) -> list[int]:
        alone.append(len(sockets))
        return send_each(sockets, text)

    monkeypatch.setattr(group_send, "send_each", noted)
    if send.has_ring:  # else this kernel refuses it, as the next test does
        for sockets in (SOCKETS_MIN, ENTRIES, ENTRIES + 1, SOCKETS_MIN - 1):
            send(near_ends(pairs[:sockets]), TEXT)
        assert alone == [0, 0, 1, SOCKETS_MIN - 1]


def call_through(
    monkeypatch: pytest.MonkeyPatch, around: Callable[[SendRing, Enter], Enter]
) -> GroupSend:
    """Return a group send whose ring calls the kernel in another way, if this kernel allows one."""
    send = GroupSend(io_uring=True)
    if send._ring is not None:
        monkeypatch.setattr(send._ring, "_enter", around(send._ring, send._ring._enter))
    return send


def test_results_in_any_order_are_those_of_their_sockets(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels before 6.2 say first which sends have failed."""

    def failures_first(ring: SendRing, enter: Enter) -> Enter:
        def entered(sends: int, results: int = 0) -> None:
            enter(sends, results)
            told = list(zip(ring._results, ring._slots, strict=True))
            first = ring._read[0] % len(told)
            mixed = sorted(told[first : first + sends], key=lambda pair: (pair[0], -pair[1]))
            for at, (result, slot) in enumerate(mixed, first):
                ring._results[at], ring._slots[at] = result, slot

        return entered

    send = call_through(monkeypatch, failures_first)
    for at in (7, 30):
        pairs[at][0].close()
    for _ in range(3):
        taken_bytes = send(near_ends(pairs[:100]), TEXT)
        assert [at for at, taken in enumerate(taken_bytes) if not taken] == [7, 30]


@pytest.mark.parametrize("is_sent", [False, True], ids=["before-the-call", "after-it"])
def test_a_call_that_was_cut_short_leaves_nothing_to_the_next(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    interrupts = iter([True])

    def interrupted(ring: SendRing, enter: Enter) -> Enter:
        def entered(sends: int, results: int = 0) -> None:
            is_cut_short = next(interrupts, False)
            if is_sent or not is_cut_short:
                enter(sends, results)
            if is_cut_short:
                raise KeyboardInterrupt

        return entered

    send = call_through(monkeypatch, interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        send(near_ends(pairs[:40]), TEXT)
    assert next(interrupts, None) is None or not send.has_ring
    assert send(near_ends(pairs[40:100]), TEXT) == [len(TEXT)] * 60
    assert {far.recv(1 << 16) for _, far in pairs[40:100]} == {TEXT}
    is_sent = is_sent or not send.has_ring
    assert sum(received_bytes(far) for _, far in pairs[:40]) == 40 * len(TEXT) * is_sent


def test_a_ring_whose_calls_are_refused_is_given_up(
    pairs: Pairs, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_send, "SYS_IO_URING_ENTER", -1)  # no system call has this number
    send = GroupSend(io_uring=True)
    with caplog.at_level(logging.INFO, "tidegate.driver"):
        for _ in range(2):
            assert send(near_ends(pairs[:40]), TEXT) == [len(TEXT)] * 40
    assert not send.has_ring
    assert [record.getMessage() for record in caplog.records] in (
        [],  # this kernel refused it at once
        ["no io_uring here: Function not implemented"],
    )


def test_without_io_uring_there_is_a_call_for_each(caplog: pytest.LogCaptureFixture) -> None:
    assert not GroupSend(io_uring=False).has_ring
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with caplog.at_level(logging.INFO, "tidegate.driver"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # the kernel opens no file now
        try:
            refused = GroupSend(io_uring=True)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not refused.has_ring
    [record] = caplog.records
    assert record.getMessage().startswith("no io_uring here: ")


def test_a_ring_that_is_closed_or_dropped_leaves_no_file(pairs: Pairs) -> None:
    gc.collect()
    before = open_files()
    for _ in range(5):
        GroupSend(io_uring=True)
    gc.collect()
    assert open_files() == before
    send = GroupSend(io_uring=True)
    for _ in range(2):
        send.close()
    assert open_files() == before
    assert send(near_ends(pairs[:40]), TEXT) == [len(TEXT)] * 40
