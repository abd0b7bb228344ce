"""The Spark pipeline as a child in its own process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tidegate.app.cli.demo.feeds import MARKET_TOPIC

SPARK_TOPIC = "market.1s"
INTERVAL = "1s"
STOP_S_MAX = 2.5

Launch = tuple[Callable[[str], list[str]], dict[str, str]]
"""From a definition file to the command that runs it, and that command's environment."""


class SparkChild:
    """Runs the pipeline that fills `market.1s` from `market`.

    A context manager: leaving it ends the child and removes its folder.

    Attributes:
        folder: the child's working folder with definition, checkpoint and log.
    """

    def __init__(self, launch: Launch, address: str) -> None:
        self._command, self._environment = launch
        self._address = address
        self._temporary = tempfile.TemporaryDirectory(
            prefix="tidegate-demo-", ignore_cleanup_errors=True
        )
        self.folder = self._temporary.name
        self._log = Path(self.folder, "pipeline.log")
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        file = Path(self.folder, "demo.toml")
        file.write_text(definition(self._address), "utf-8")
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                self._command(str(file)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self._environment,
                start_new_session=True,  # Ctrl-C reaches only the demo, which ends the child
            )
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()
        self._temporary.cleanup()

    def failure(self) -> str:
        """Return the child's last line if it ended by itself; empty while it runs."""
        if self._child is None or self._child.poll() is None:
            return ""
        lines = self._log.read_text("utf-8", errors="replace").strip().splitlines()
        last = lines[-1].removeprefix("tidegate: ") if lines else "it said nothing"
        return f"The Spark pipeline ended with {self._child.returncode}: {last}"

    def stop(self, seconds_max: float = STOP_S_MAX) -> None:
        """End the child after its current batch, and kill its process group if it does not end."""
        child = self._child
        if child is None:
            return
        self._child = None
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds_max)
        # Kill the rest of the group. Java is in its own group and ends with the child.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def definition(address: str) -> str:
    """Return the definition file: the newest quote of each ticker, every second."""
    return f"""gateway = "{address}"

[pipeline.market]
source = {{ kind = "tidegate", topic = "{MARKET_TOPIC}" }}
key = ["/tickerId"]
interval = "{INTERVAL}"
sink = {{ topic = "{SPARK_TOPIC}" }}
"""
