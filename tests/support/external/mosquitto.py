"""A real MQTT broker on a loopback port, which can be killed and started again."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import leftovers
from tests.support.deadlines import HANGS_S
from tests.support.outside import require
from tests.support.ports import lasting_port

SETTINGS = """
user {user}
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
autosave_interval 1
autosave_on_changes true
max_queued_messages 0
max_inflight_messages 0
"""


class Mosquitto:
    """One broker, whose sessions are in a folder."""

    def __init__(self, folder: Path, more: str = "") -> None:
        found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
        require(found is not None, "no mosquitto: the Debian package has this name")
        self._binary = str(found)
        self.port = lasting_port()
        self._config = folder / "mosquitto.conf"
        # As root it would become another user, who may not write to the folder.
        settings = SETTINGS.format(user=getpass.getuser(), port=self.port, folder=folder)
        self._config.write_text(settings + more)
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return when it listens."""
        command = [self._binary, "-c", str(self._config)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            process_group=0,
        )
        leftovers.watch(self._process)
        deadline = time.monotonic() + HANGS_S
        while True:
            assert self._process.poll() is None, f"mosquitto ended: {self._process.returncode}"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        """End it at once."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(HANGS_S)

    def stop(self) -> None:
        """End it in order: it keeps its sessions and messages."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(HANGS_S)


@contextmanager
def mosquitto(folder: Path, more: str = "") -> Iterator[Mosquitto]:
    """A running broker, ended with the block; `more` are lines of its settings."""
    broker = Mosquitto(folder, more)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
