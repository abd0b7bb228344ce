"""What `deploy/` has for operators is sound: the unit of systemd, the health check of the image."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dev import ROOT
from tests.support.children import serving
from tests.support.commands import environment
from tests.support.deadlines import HANGS_S
from tests.support.outside import require
from tidegate.app.cli.command import MODULES
from tidegate.app.settings.settings import Settings

UNIT = ROOT / "deploy" / "tidegate.service"
READY = ROOT / "deploy" / "ready.py"
EXPOSURE_MAX = 2.0
"""Of systemd's own scale, from 0 to 10; a service without any hardening has 9.6."""


def test_the_unit_starts_what_there_is() -> None:
    text = UNIT.read_text()
    [start] = re.findall(r"^ExecStart=\S+/tidegate (.*)$", text, re.MULTILINE)
    command, *words = start.split()
    assert command in MODULES
    assert words[::2] == ["--config", "--data"]
    for name in re.findall(r"^Environment=(.*)$", text, re.MULTILINE):
        setting = name.partition("=")[0].removeprefix("TIDEGATE_").lower()
        assert setting in Settings.model_fields


@pytest.mark.nightly
def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    require(tool is not None, "no systemd-analyze: Debian's package is systemd")
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/tidegate/.venv/bin/tidegate", sys.executable))
    for words in (["verify"], ["security", "--offline=true", f"--threshold={EXPOSURE_MAX * 10:g}"]):
        ended = subprocess.run(
            [str(tool), *words, str(here)], capture_output=True, text=True, timeout=HANGS_S
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.system
async def test_the_health_check_follows_the_port() -> None:
    async with serving() as (_, address):
        port = address.rpartition(":")[2]
        for asked, status in ((port, 0), ("1", 1)):
            ended = subprocess.run(
                [sys.executable, str(READY)],
                env={**environment(), "TIDEGATE_PORT": asked},
                capture_output=True,
                text=True,
                timeout=HANGS_S,
            )
            assert (ended.returncode, bool(ended.stdout)) == (status, bool(status))
