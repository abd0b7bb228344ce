"""PostgreSQL's streaming replication protocol: messages of the log, and how far they are confirmed.

See the section Streaming Replication Protocol of PostgreSQL's documentation.
"""

from __future__ import annotations

import select
import struct
import time

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

S_OF_2000 = 946_684_800
US_PER_S = 1_000_000
LOG, KEEPALIVE, STATUS = b"w", b"k", b"r"
DATA_HEAD, KEEPALIVE_FORM, STATUS_FORM = 25, ">QqB", ">cQQQqB"


class ReplicationStream:
    """A connection in replication mode.

    Args:
        conninfo: with `replication=database`.

    Raises:
        psycopg.Error: from every method.
    """

    def __init__(self, conninfo: str) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._server = self._connection.pgconn
        self._confirmed = 0
        self._idle_at = 0

    def ask(self, command: str) -> list[str]:
        """Run a command; return the first row of its answer, if it has one."""
        result = self._server.exec_(command.encode())
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise error_from_result(result)
        values = [result.get_value(0, at) for at in range(result.nfields if result.ntuples else 0)]
        return [(each or b"").decode() for each in values]

    def begin(self, command: str) -> None:
        """Run the command that begins the stream."""
        result = self._server.exec_(command.encode())
        if result.status != ExecStatus.COPY_BOTH:
            raise error_from_result(result)

    def receive(self, seconds: float) -> bytes | None:
        """Return the next message of the output plugin; None if there is none in time."""
        give_up_at = time.monotonic() + seconds
        while True:
            size, content = self._server.get_copy_data(1)
            if size > 0:
                message = bytes(content)
                if message[:1] == LOG:
                    return message[DATA_HEAD:]
                if message[:1] == KEEPALIVE:
                    self._idle_at, _, wants_answer = struct.unpack_from(KEEPALIVE_FORM, message, 1)
                    if wants_answer:
                        self._send_status()
            elif size == 0:
                left_s = max(0.0, give_up_at - time.monotonic())
                if not select.select([self._server.socket], [], [], left_s)[0]:
                    return None
                self._server.consume_input()
            else:
                self._raise_end()

    def confirm(self, lsn: int) -> None:
        """Let the server forget the log before a position."""
        self._confirmed = max(self._confirmed, lsn)
        self._send_status()

    def confirm_idle(self) -> None:
        """Confirm what the server has read, where all that it has sent is confirmed.

        Else changes of other tables would keep the log from being removed.
        """
        if self._idle_at > self._confirmed:
            self.confirm(self._idle_at)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _send_status(self) -> None:
        clock_us = int((time.time() - S_OF_2000) * US_PER_S)
        at = self._confirmed
        self._server.put_copy_data(struct.pack(STATUS_FORM, STATUS, at, at, at, clock_us, 0))
        while self._server.flush():
            select.select([], [self._server.socket], [])

    def _raise_end(self) -> None:
        result = self._server.get_result()
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
        raise psycopg.OperationalError("the server has ended the stream")
