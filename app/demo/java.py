"""The Java that Spark will find: its version, and whether that will do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_MIN = 17
ANSWER_S_MAX = 30


def java_version() -> str | None:
    """The version of $JAVA_HOME's Java, or else of the one on PATH; None without any."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    release = Path(java).resolve().parents[1] / "release"
    written = release.read_text(errors="replace") if release.is_file() else ""
    found = re.search(r'JAVA_VERSION="([^"]+)"', written)
    if found is None:  # not every vendor writes that file; asking takes a virtual machine's start
        found = re.search(r'version "([^"]+)"', _asked(java))
    return found[1] if found else None


def java_major(version: str) -> int:
    """17 of `17.0.15`, 8 of `1.8.0_402`; 0 where there is no number."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


def missing_java() -> str | None:
    """One sentence if Spark could not start for want of a Java; None if it can."""
    version = java_version()
    if version is not None and java_major(version) >= JAVA_MIN:
        return None
    here = "none was found" if version is None else f"this machine's is {version}"
    return (
        f"Spark needs Java {JAVA_MIN} or newer and {here}: install one (Debian and Ubuntu: "
        "apt-get install default-jre-headless), or leave Spark out with --no-spark."
    )


def _asked(java: str) -> str:
    try:
        return subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=ANSWER_S_MAX
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""
