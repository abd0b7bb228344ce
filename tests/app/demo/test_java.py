"""The Java that is there, too old a one, and none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.outside import require_java
from tidegate.app.demo import java


def installed(folder: Path, version: str, *, release: bool) -> Path:
    """A Java's folder: its release file, or a program that says its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    if release:
        (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize(("version", "good"), [("17.0.15", True), ("1.8.0_402", False)])
def test_the_version_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, release: bool, good: bool
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed(tmp_path, version, release=release)))
    assert java.java_version() == version
    assert (java.missing_java() is None) is good


@pytest.mark.parametrize(
    ("version", "major"), [("17", 17), ("21-ea", 21), ("1.8.0_402", 8), ("", 0)]
)
def test_major_versions(version: str, major: int) -> None:
    assert java.java_major(version) == major


def test_none_is_told_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/none")
    assert java.java_version() is None
    assert "--no-spark" in (java.missing_java() or "")


def test_this_machine_has_one() -> None:
    require_java()
    assert java.missing_java() is None
