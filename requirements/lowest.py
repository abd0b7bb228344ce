"""Tests the lower bounds of pyproject.toml: what they allow must import, and pass unit tests.

Installs the lowest version of each dependency into an environment that is thrown away, and runs the
tests of clients and extras in it; those of extras import every module. What is not installed,
such as pytest and Spark, is borrowed from the Python that runs this. Needs the package index.
Clients that run elsewhere (Node, Chromium, those of other people) are left out: no version of a
Python package changes them, and the other run has them.

`--all` installs Spark too, and runs the tests of keys as well: minutes in place of seconds.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = [sys.executable, "-m", "uv"]
TESTS = ["tests/clients", "tests/packaging/test_extras.py"]
LEFT_OUT = ["-m", "not spark and not browser", "-k", "not node and not third_party"]


def install(folder: Path, extra: str) -> Path:
    """Make the environment; the answer is its Python.

    Raises:
        CalledProcessError: no solution, or no package index.
    """
    python = folder / "bin" / "python"
    subprocess.run([*UV, "venv", "-q", "-p", sys.executable, str(folder)], check=True)
    lowest = ["--resolution", "lowest-direct", "-r", "pyproject.toml", "--extra", extra]
    command = [*UV, "pip", "install", "-q", "-p", str(python), *lowest]
    subprocess.run(command, check=True, cwd=ROOT)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    borrowed = folder / "lib" / version / "site-packages" / "borrowed.pth"
    borrowed.write_text(sysconfig.get_path("purelib") + "\n")
    return python


def main() -> int:
    """Run the tests with the lowest versions, and return their exit code."""
    with tempfile.TemporaryDirectory() as folder:
        whole = sys.argv[1:] == ["--all"]
        python = install(Path(folder), "all" if whole else "demo")
        tests = [*TESTS, "tests/keys"] if whole else TESTS
        command = [str(python), "-m", "pytest", "-q", "-n", "2", *LEFT_OUT, *tests]
        return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
