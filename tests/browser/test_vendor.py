"""Files of others are what their packages hold, and the console's own types are sound."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import dev
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_tsc

STATIC = dev.ROOT / "app" / "static"
CONSOLE = STATIC / "console"
VENDOR = STATIC / "vendor"
HASHES = {
    "uplot-1.6.32/LICENSE": ("8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"),
    "uplot-1.6.32/uPlot.d.ts": ("af44374f6e808be4f7f3fa5888b9c7574dca9f8a15a66d54b6763535802c8080"),
    "uplot-1.6.32/uPlot.esm.js": (
        "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba"
    ),
    "uplot-1.6.32/uPlot.min.css": (
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"
    ),
}
"""Of the files in the packages of npm."""


def test_files_of_others_are_unmodified() -> None:
    held = {
        str(path.relative_to(VENDOR)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "README.md"
    }
    assert held == HASHES
    for folder in (path for path in VENDOR.iterdir() if path.is_dir()):
        assert f"`{folder.name}`" in (VENDOR / "README.md").read_text()


def test_what_the_console_loads_is_there_and_from_no_other_host() -> None:
    texts = [path.read_text() for path in CONSOLE.rglob("*") if path.suffix in {".html", ".js"}]
    named = {path for text in texts for path in re.findall(r"""["'](/static/[^"']+)["']""", text)}
    assert named
    assert [path for path in named if not (STATIC / path.removeprefix("/static/")).exists()] == []
    loads = re.compile(r"""(?:from|import|src=|href=)\s*\(?["'](https?:|//)""")
    assert [text for text in texts if loads.search(text)] == []


@pytest.mark.nightly
def test_types_are_sound() -> None:
    command = [require_tsc(), "--project", str(CONSOLE / "tsconfig.json")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.nightly
def test_a_wrong_type_is_seen(tmp_path: Path) -> None:
    """The console in a tree like this one, with one call that the client does not know."""
    for path in ("app/static", "clients/js"):
        shutil.copytree(dev.ROOT / path, tmp_path / path)
    console = tmp_path / "app" / "static" / "console"
    with (console / "kit" / "dom.js").open("a") as module:
        module.write('import { connect } from "/client.js";\nconnect().nothing();\n')
    command = [require_tsc(), "--project", str(console / "tsconfig.json")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S)
    assert "'nothing' does not exist" in ended.stdout
