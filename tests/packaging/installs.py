"""Tidegate as its users have it: a wheel, in an environment that knows nothing of the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

from tests.support.deadlines import HANGS_S


def build(target: str, source: Path, folder: Path) -> Path:
    """Build a `wheel` or an `sdist` from a source tree: the file. Needs no network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=HANGS_S)
    (built,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    """Each file of a wheel.

    Raises:
        AssertionError: a name is there twice.
    """
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names))
        return {name: archive.read(name) for name in names}


def install(wheel: Path, folder: Path) -> Path:
    """A fresh environment with the wheel in it; the answer is the environment's Python.

    It borrows the dependencies of the Python that runs the tests, but not the checkout: Python
    reads no `.pth` file of a folder that is itself named in one.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, timeout=HANGS_S)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    borrowed = folder / "lib" / version / "site-packages" / "borrowed.pth"
    borrowed.write_text(sysconfig.get_path("purelib") + "\n")
    return python
