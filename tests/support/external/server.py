"""A third-party server on a loopback port, which can be killed and restarted."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import leftovers
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port


class ExternalServer:
    """A process that listens on `port`, and keeps what it has in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = lasting_port()
        self._process: subprocess.Popen[str] | None = None

    def command(self) -> Sequence[str]:
        """The command that runs it."""
        raise NotImplementedError

    def start(self, **options: Any) -> None:
        """Return when it takes connections; `options` are those of `Popen`."""
        with (self.folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=self.folder,
                process_group=0,
                **options,
            )
        leftovers.watch(self._process)
        deadline = time.monotonic() + HANGS_S
        while not self.is_ready():
            code = self._process.poll()
            assert code is None, f"{self.command()[0]} ended with {code}"
            assert time.monotonic() < deadline, f"{self.command()[0]} does not answer"
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """Whether it takes connections."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def hang(self) -> None:
        """Let it take no more, with its connections open; `kill` ends it as before."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it at once."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(HANGS_S)
