"""A real PostgreSQL server with logical replication."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.support.deadlines import HANGS_S
from tests.support.external.server import ExternalServer
from tests.support.outside import require

USER = "tidegate"
ACCESS = """
host all guarded 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
wal_level = logical
fsync = off
max_connections = 20
"""


class PostgresServer(ExternalServer):
    """One server in a folder of its own, which may die and come back."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._binaries = _binaries()
        self._owner = _owner()
        if self._owner is not None:
            shutil.chown(folder, self._owner)
        data = folder / "cluster"
        initdb = [str(self._binaries / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-N"]
        subprocess.run(
            initdb, check=True, capture_output=True, cwd=folder, user=self._owner, timeout=HANGS_S
        )
        (data / "pg_hba.conf").write_text(ACCESS)
        with (data / "postgresql.conf").open("a") as file:
            file.write(SETTINGS.format(port=self.port))

    def address(self, user: str = USER) -> str:
        """The address for a user, who may have a password."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/postgres"

    def command(self) -> Sequence[str]:
        """The command that runs it."""
        return [str(self._binaries / "postgres"), "-D", str(self.folder / "cluster")]

    def start(self, **options: Any) -> None:
        """Return when it answers."""
        super().start(user=self._owner, **options)

    def kill(self) -> None:
        """End it at once, and await that its processes have noticed: it cannot start before."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children(recursive=True)
        super().kill()
        _, alive = psutil.wait_procs(children, HANGS_S)
        assert not alive

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            self.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with psycopg.connect(self.address(), autocommit=True, connect_timeout=5) as session:
            for statement in statements:
                session.execute(statement.encode())

    def query(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with psycopg.connect(self.address(), autocommit=True) as session:
            return session.execute(query.encode()).fetchall()


def _binaries() -> Path:
    """The folder of the server's programs; Debian has them in none of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    path = shutil.which("initdb") or (str(found[-1]) if found else None)
    require(path is not None, "no PostgreSQL server: the Debian package is postgresql")
    return Path(str(path)).resolve().parent


def _owner() -> str | None:
    """The user to run as: PostgreSQL refuses to be root."""
    return "nobody" if os.geteuid() == 0 else None


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running server, ended with the block."""
    # Not within pytest's folder, which others may not enter.
    with tempfile.TemporaryDirectory(prefix="tidegate-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()
