"""A listening socket that lives on when the process has run out of file descriptors.

asyncio in itself goes on trying for every connection that waits, with a line in the log and a
timer for each, and keeps those who wait in the dark. Here they are turned away at once.
"""

import contextlib
import errno
import logging
import os
import socket
from typing import Any, Final

from app.logs import event

# Then the loop has other things to do: a storm of connections does not hold up who is inside.
ACCEPTED_IN_A_ROW_MAX: Final = 32
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})

logger = logging.getLogger("tidegate.connections")


class Acceptor(socket.socket):
    """Accepts a few at a time, and keeps one descriptor to turn people away with."""

    def __init__(self, family: socket.AddressFamily) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._spare: int | None = _open_spare()
        self._accepted_in_a_row = 0
        self._is_out = False

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection and its address.

        Raises:
            BlockingIOError: none is waiting, or the loop is to have its turn first.
        """
        if self._accepted_in_a_row == ACCEPTED_IN_A_ROW_MAX:
            self._accepted_in_a_row = 0
            raise BlockingIOError
        try:
            accepted = super().accept()
        except OSError as error:
            self._accepted_in_a_row = 0
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
            self._turn_one_away()
            raise BlockingIOError from None
        self._accepted_in_a_row += 1
        self._is_out = False
        return accepted

    def close(self) -> None:
        """Close the socket and let the spare descriptor go."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        super().close()

    def _turn_one_away(self) -> None:
        if not self._is_out:
            logger.warning(
                "file descriptors have run out: connections are turned away",
                extra=event("descriptors-out"),
            )
            self._is_out = True
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        with contextlib.suppress(OSError):  # another took it, or nobody is waiting any more
            super().accept()[0].close()
        with contextlib.suppress(OSError):
            self._spare = _open_spare()


def _open_spare() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
