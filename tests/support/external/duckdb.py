"""DuckDB, installed into a folder of its own: it is in no lock, as only tests use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.commands import environment
from tests.support.deadlines import HANGS_S
from tests.support.outside import require

DUCKDB = "duckdb>=1.4,<3"
ASK = """
import json, sys
import duckdb

found = duckdb.sql(sys.argv[1]).fetchall()
print(json.dumps([list(row) for row in found], default=str))
"""


class DuckDb:
    """Installs DuckDB into a folder."""

    def __init__(self, packages: Path) -> None:
        self._packages = packages
        uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
        ended = subprocess.run(
            [*uv, "--target", str(packages), DUCKDB],
            capture_output=True,
            text=True,
            timeout=HANGS_S,
        )
        require(ended.returncode == 0, f"no DuckDB from the package index: {ended.stderr[-200:]}")

    def run(self, program: str, folder: Path, *arguments: str) -> str:
        """What a program prints that finds DuckDB."""
        path = f"{environment()['PYTHONPATH']}:{self._packages}"
        ran = subprocess.run(
            [sys.executable, "-P", "-c", program, *arguments],
            env={**environment(), "PYTHONPATH": path},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=HANGS_S,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def ask(self, query: str, folder: Path) -> list[list[Any]]:
        """The rows of a query in JSON; what JSON does not have is a text."""
        found: list[list[Any]] = json.loads(self.run(ASK, folder, query))
        return found
