"""The npm package of the client, built in a separate checkout as docs/javascript.md describes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import dev
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_npm

PAGE = dev.ROOT / "docs" / "javascript.md"
CLIENT = dev.ROOT / "clients" / "js"
NOT_COMMITTED = shutil.ignore_patterns("node_modules", "types", "*.tgz", "package-lock.json")


def commands_of(page: Path) -> list[str]:
    """Return the shell blocks of a page."""
    return re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)


def run_commands(text: str, folder: Path) -> None:
    """Run a shell block; stop at the first command that fails.

    Raises:
        AssertionError: a command has failed.
    """
    ended = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", text],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def copy_packages(checkout: Path) -> None:
    """Copy the files that npm needs from this checkout; skip the test without npm."""
    require_npm()
    checkout.mkdir()
    shutil.copy(dev.ROOT / "LICENSE", checkout)
    for folder in (Path("clients", "js"), Path("examples", "react-prices")):
        shutil.copytree(dev.ROOT / folder, checkout / folder, ignore=NOT_COMMITTED)
