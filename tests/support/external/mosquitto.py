"""A real MQTT broker on a loopback port, which can be killed and started again."""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.deadlines import HANGS_S
from tests.support.external.server import ExternalServer
from tests.support.outside import require

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


class Mosquitto(ExternalServer):
    """One broker, whose sessions are in a folder."""

    def __init__(self, folder: Path, more: str = "") -> None:
        super().__init__(folder)
        found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
        require(found is not None, "no mosquitto: the Debian package has this name")
        self._binary = str(found)
        self._config = folder / "mosquitto.conf"
        # As root it would become another user, who may not write to the folder.
        settings = SETTINGS.format(user=getpass.getuser(), port=self.port, folder=folder)
        self._config.write_text(settings + more)

    @property
    def address(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """The command that runs it."""
        return [self._binary, "-c", str(self._config)]

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
