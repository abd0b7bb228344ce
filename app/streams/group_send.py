"""Group send: one text to many sockets, in one system call where the kernel has io_uring.

A system call, its look at a file and its return cost a fifth of a small send. io_uring takes the
sends of a whole turn at once. None of them may wait, so all are done when the call returns, and
nothing outlives it. Kernels before 5.18 and the usual seccomp profile of containers refuse
io_uring: then each socket has a call of its own, and streams get the same bytes.

The rings are shared memory, described in `io_uring(7)` and `io_uring_enter(2)`. `ctypes` and
`memoryview` reach all of it; an extension in C was measured and gained nothing.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import mmap
import os
import socket
import struct
import sys
import weakref
from array import array
from collections.abc import Sequence
from itertools import repeat
from typing import Final

from tidegate.app.logs import event as log_event

ENTRIES: Final = 256  # sends in one call, a power of two
# For fewer sockets the work around the one call costs more than their own calls.
SOCKETS_MIN: Final = 16

# The same on every architecture that Linux has got since 2019, and on x86, ARM, POWER and s390.
SYS_IO_URING_SETUP: Final = 425
SYS_IO_URING_ENTER: Final = 426
SETUP_SUBMIT_ALL: Final = 1 << 7  # go on behind a send that fails; kernels before 5.18 refuse it
ENTER_GETEVENTS: Final = 1
OP_SEND: Final = 26
OFFSET_OF_ENTRIES: Final = 0x10000000
# `struct io_uring_params`: sizes and flags, then the offsets within the submission queue (from
# word 10) and within the completion queue (from word 20).
PARAMETER_WORDS: Final = 30
# `struct io_uring_sqe`: operation, flags, priority, file, offset, address, length, flags of the
# message, user data; the rest is for other operations.
ENTRY: Final = struct.Struct("=BBHiQQIIQ24x")
RESULT_BYTES: Final = 16  # `struct io_uring_cqe`: user data, result, flags
COUNTER_MASK: Final = 0xFFFFFFFF
# Errors after which the ring is as good as before: a signal came, or memory was short.
PASSING: Final = {errno.EINTR, errno.EAGAIN, errno.EBUSY, errno.ENOMEM}

logger = logging.getLogger("tidegate.driver")


def send_each(sockets: Sequence[socket.socket], text: bytes) -> list[int]:
    """Send by a call for each socket; return how many bytes each took, 0 after an error."""
    # A loop in Python costs as much as the call: `map` goes on behind the socket that has failed.
    # `os.write` would cost more: the kernel looks at a file first, and finds the socket behind it.
    sends = map(socket.socket.send, sockets, repeat(text))
    taken_bytes: list[int] = []
    while len(taken_bytes) < len(sockets):
        try:
            taken_bytes.extend(sends)
        except OSError:  # a full socket, or one whose peer has left
            taken_bytes.append(0)
    return taken_bytes


class GroupSend:
    """Sends one text to many sockets, by io_uring or by a call for each.

    It belongs to one thread.

    Args:
        io_uring: use it, if the kernel allows it; a refusal is logged.
    """

    def __init__(self, *, io_uring: bool) -> None:
        self._ring: SendRing | None = None
        if io_uring:
            try:
                self._ring = SendRing()
            except OSError as error:
                self._end_ring(error)

    @property
    def has_ring(self) -> bool:
        """True if io_uring sends, where there are sockets enough."""
        return self._ring is not None

    def __call__(self, sockets: Sequence[socket.socket], text: bytes) -> list[int]:
        """Return how many bytes each socket took: 0 if it is full or closed, or its peer left."""
        if self._ring is None or len(sockets) < SOCKETS_MIN:
            return send_each(sockets, text)
        try:
            taken_bytes = self._ring.send(sockets[:ENTRIES], text)
        except OSError as error:  # a profile may allow the set-up and refuse this
            self._end_ring(error)
            return send_each(sockets, text)
        if min(taken_bytes, default=0) < 0:  # the number of an error
            taken_bytes = [max(taken, 0) for taken in taken_bytes]
        # The rest is more than the ring holds, or the kernel had no memory for it.
        return taken_bytes + send_each(sockets[len(taken_bytes) :], text)

    def close(self) -> None:
        """Close the ring; what is still sent has a call for each."""
        self._ring = None

    def _end_ring(self, error: OSError) -> None:
        self._ring = None
        figures = log_event("io-uring-refused", reason=error.strerror)
        logger.info("no io_uring here: %s", error.strerror, extra=figures)


class SendRing:
    """A ring of io_uring for sends. It closes when it is dropped: nothing is under way then.

    Raises:
        OSError: the kernel does not know io_uring, or refuses it here.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":  # elsewhere the numbers are those of other calls
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        system_call = ctypes.CDLL(None, use_errno=True).syscall
        system_call.argtypes = [ctypes.c_long] * 7
        system_call.restype = ctypes.c_long
        self._system_call = system_call
        parameters = (ctypes.c_uint32 * PARAMETER_WORDS)()
        parameters[2] = SETUP_SUBMIT_ALL
        where = ctypes.addressof(parameters)
        self._file = system_call(SYS_IO_URING_SETUP, ENTRIES, where, 0, 0, 0, 0)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        weakref.finalize(self, os.close, self._file)
        self._results_max = parameters[1]
        self._map(list(parameters[10:17]), list(parameters[20:26]))

    def _map(self, submissions: list[int], completions: list[int]) -> None:
        """Map both queues, and write what is the same in all sends."""
        begun, following, _, _, _, _, order = submissions
        read, done, _, _, _, first = completions
        end = first + RESULT_BYTES * self._results_max
        size_bytes = max(order + 4 * ENTRIES, end)
        queues = memoryview(mmap.mmap(self._file, size_bytes, mmap.MAP_SHARED))
        words = queues[: size_bytes & ~3].cast("I")
        # No barriers are needed: the kernel looks at these within our calls, on our own thread.
        self._begun, self._next = words[begun // 4 :][:1], words[following // 4 :][:1]
        self._read, self._done = words[read // 4 :][:1], words[done // 4 :][:1]
        words[order // 4 :][:ENTRIES] = array("I", range(ENTRIES))
        # Columns of the entries: a column is one assignment.
        self._results = queues[first:end].cast("i")[2::4]
        self._slots = queues[first:end].cast("Q")[0::2]
        entries = memoryview(
            mmap.mmap(self._file, ENTRIES * ENTRY.size, mmap.MAP_SHARED, offset=OFFSET_OF_ENTRIES)
        )
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        for at in range(ENTRIES):
            ENTRY.pack_into(entries, at * ENTRY.size, OP_SEND, 0, 0, -1, 0, 0, 0, flags, at)
        self._files = entries.cast("i")[1::16]
        self._addresses = entries.cast("Q")[2::8]
        self._lengths = entries.cast("I")[6::16]

    def send(self, sockets: Sequence[socket.socket], text: bytes) -> list[int]:
        """Send to at most `ENTRIES` sockets by one system call.

        Returns the bytes that each took, or the number of its error below 0; fewer than there are
        sockets, if the kernel began no more.

        Raises:
            OSError: the kernel refuses the call, and has sent nothing.
        """
        # Begin where the kernel is: an exception may have ended an earlier call anywhere.
        first = self._next[0] = self._begun[0]
        self._read[0] = self._done[0]
        # Ask each socket for its number: a closed one has none, and its old one may be another's.
        files = array("i", map(socket.socket.fileno, sockets))
        address = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value
        self._addresses[:] = array("Q", [address or 0]) * ENTRIES
        self._lengths[:] = array("I", [len(text)]) * ENTRIES
        slot = first % ENTRIES
        room = ENTRIES - slot
        self._files[slot : slot + len(files)] = files[:room]
        self._files[: max(0, len(files) - room)] = files[room:]
        self._next[0] = (first + len(files)) & COUNTER_MASK
        self._enter(len(files))
        begun = (self._begun[0] - first) & COUNTER_MASK
        while (self._done[0] - self._read[0]) & COUNTER_MASK < begun:
            self._enter(0, begun)
        results = self._read_results(self._results, begun)
        if results.count(len(text)) == begun:
            return results
        # Kernels before 6.2 say first what has failed, and later ones promise no order.
        placed = [0] * begun
        for slot, result in zip(self._read_results(self._slots, begun), results, strict=True):
            placed[(slot - first) % ENTRIES] = result
        return placed

    def _read_results(self, column: memoryview[int], count: int) -> list[int]:
        at = self._read[0] % self._results_max
        read = column[at : at + count].tolist()
        return read + column[: count - len(read)].tolist()

    def _enter(self, sends: int, results: int = 0) -> None:
        """Let the kernel begin some sends, or wait for results; both show in the rings."""
        flags = ENTER_GETEVENTS if results else 0
        done = self._system_call(SYS_IO_URING_ENTER, self._file, sends, results, flags, 0, 0)
        if done < 0 and ctypes.get_errno() not in PASSING:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
