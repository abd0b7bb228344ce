"""A real RabbitMQ server, as Debian packs it: installed, or fetched and only unpacked."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import psutil
from pika.exceptions import AMQPError

from tests.support.deadlines import HANGS_S
from tests.support.external.server import ExternalServer
from tests.support.outside import require
from tests.support.ports import lasting_port

ERLANG = (
    "base asn1 crypto eldap ftp inets mnesia os-mon parsetools public-key runtime-tools snmp ssl "
    "syntax-tools tftp tools xmerl"
)
PACKAGES = ("rabbitmq-server", *(f"erlang-{name}" for name in ERLANG.split()))
CACHE = Path.home() / ".cache" / "tidegate-tests" / "rabbitmq"
FETCH_SECONDS_MAX = 600


@functools.cache
def system() -> Path | None:
    """The folder that has `usr/lib/rabbitmq`; None where there is none to be had."""
    if (found := _scripts(Path("/"))) is not None and found.exists():
        return Path("/")
    if _scripts(CACHE) is None:
        try:
            _fetch(CACHE)
        except (OSError, subprocess.SubprocessError):
            return None
    return CACHE


def _scripts(root: Path) -> Path | None:
    found = sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"))
    return found[-1] if found else None


def _fetch(folder: Path) -> None:
    packages, unpacked = folder.with_name("rabbitmq-packages"), folder.with_name("rabbitmq-new")
    packages.mkdir(parents=True, exist_ok=True)
    _run(["apt-get", "download", *PACKAGES], packages)
    for package in sorted(packages.glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(unpacked)], packages)
    unpacked.rename(folder)


def _run(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=FETCH_SECONDS_MAX)


class RabbitServer(ExternalServer):
    """One node in a folder of its own, with the mapper of Erlang's ports that it needs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        root = system()
        require(root is not None, "no rabbitmq-server: the Debian package has this name")
        self._root = root or Path("/")
        self._mapper: subprocess.Popen[bytes] | None = None
        erlang = self._root / "usr" / "lib" / "erlang"
        programs = next(erlang.glob("erts-*")) / "bin"
        # Debian's own names the folder that it is installed to.
        (folder / "erl").write_text('#!/bin/sh\nexec erlexec "$@"\n')
        (folder / "erl").chmod(0o755)
        (folder / "plugins").write_text("[].")
        self._environment = {
            **os.environ,
            "PATH": f"{folder}:{programs}:{os.environ['PATH']}",
            "ROOTDIR": str(erlang),
            "BINDIR": str(programs),
            "EMU": "beam",
            "PROGNAME": "erl",
            "ERL_EPMD_PORT": str(lasting_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "HOME": str(folder),
            # One thread: others would only be waited for while modules are loaded.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +SDcpu 1:1 +SDio 1",
            "RABBITMQ_NODENAME": f"n{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(lasting_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
        }

    def address(self, user: str = "guest:guest") -> str:
        """The address for a user and his password."""
        return f"amqp://{user}@127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        """The command that runs it."""
        return [str(_scripts(self._root)) + "/rabbitmq-server"]

    def start(self, **options: Any) -> None:
        """Return when it takes connections."""
        if self._mapper is None:
            epmd = f"{self._environment['BINDIR']}/epmd"
            self._mapper = subprocess.Popen([epmd], env=self._environment, cwd=self.folder)
        super().start(env=self._environment, **options)

    def is_ready(self) -> bool:
        """Whether clients can connect."""
        try:
            pika.BlockingConnection(pika.URLParameters(self.address())).close()
        except (AMQPError, OSError):
            return False
        return True

    def kill(self) -> None:
        """End it at once: its process group has the shell, Erlang and its helpers."""
        assert self._process is not None
        # The port is free once Erlang has ended, which is not the shell's child for long.
        group = psutil.Process(self._process.pid).children(recursive=True)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(HANGS_S)
        psutil.wait_procs(group, HANGS_S)

    def close(self) -> None:
        """End all for good."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        assert self._mapper is not None
        self._mapper.kill()
        self._mapper.wait(HANGS_S)


@contextmanager
def rabbit_server(folder: Path) -> Iterator[RabbitServer]:
    """A running server, ended with the block."""
    server = RabbitServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()
