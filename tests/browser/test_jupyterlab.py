"""The example notebook in JupyterLab: its cells run, and the table moves in Chromium.

JupyterLab is in no lock: nothing else needs its hundred packages. The test installs it into a
folder of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from dev import ROOT
from tests.docs.site import block_run_by
from tests.support.commands import environment, serving
from tests.support.deadlines import HANGS_S
from tests.support.outside import require
from tests.support.ports import lasting_port
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.nightly

NOTEBOOK = Path("examples", "notebook", "prices.ipynb")
KEYS = 12
ROWS_MAX = 10  # of the widget, as the notebook has it


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with JupyterLab and what it needs."""
    packages = tmp_path_factory.mktemp("jupyterlab")
    uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    command = [*uv, "--target", str(packages), "jupyterlab>=4.4,<5"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S)
    found = ended.returncode == 0
    require(found, f"no JupyterLab from the package index: {ended.stderr[-200:]}")
    return packages


@contextmanager
def opened(packages: Path, folder: Path) -> Iterator[str]:
    """Run the block of the page in a folder; yield the address that it opens in a browser."""
    address, browser = folder / "address", folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {address}.part && mv {address}.part {address}\n')
    browser.chmod(0o755)
    config = {"ServerApp": {"allow_root": True, "port": lasting_port()}}
    (folder / "jupyter_server_config.json").write_text(json.dumps(config))
    ours = environment()
    process = subprocess.Popen(
        ["bash", "-c", block_run_by(__file__).text], cwd=folder, start_new_session=True,
        env={
            **ours,
            "PATH": f"{packages / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ours['PYTHONPATH']}:{packages}",
            "JUPYTER_PATH": f"{packages}/share/jupyter:{sysconfig.get_path('data')}/share/jupyter",
            "JUPYTERLAB_DIR": f"{packages}/share/jupyter/lab",
            "JUPYTER_CONFIG_DIR": str(folder),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "HOME": str(folder),
            "BROWSER": str(browser),
        },
    )  # fmt: skip
    try:
        ends_at = time.monotonic() + HANGS_S
        while not address.exists():
            assert process.poll() is None
            assert time.monotonic() < ends_at
            time.sleep(0.05)
        yield address.read_text().strip()
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=HANGS_S)


def prices(up: float) -> list[bytes]:
    return [b'{"symbol":"S%d","price":%g,"size":1}' % (at, at + up) for at in range(KEYS)]


@pytest.mark.browser
def test_its_table_moves(chromium: Browser, packages: Path, tmp_path: Path) -> None:
    with serving() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/symbol"]})
        gateway.publish("prices", prices(0.5))
        text = (ROOT / NOTEBOOK).read_text("utf-8")
        assert not any(it.get("outputs") for it in json.loads(text)["cells"])
        (tmp_path / NOTEBOOK).parent.mkdir(parents=True)
        (tmp_path / NOTEBOOK).write_text(text.replace("http://127.0.0.1:8080", address))
        with opened(packages, tmp_path) as at:
            page = chromium.new_page(viewport={"width": 1200, "height": 2400})
            page.goto(at)
            code = page.locator(".jp-Notebook .jp-CodeCell")
            expect(code).to_have_count(4)
            # JupyterLab runs no cell while its kernel starts, and says nothing of it.
            expect(page.get_by_role("button", name="Python 3 (ipykernel) | Idle")).to_be_visible()
            code.nth(3).locator(".cm-content").click()
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_role("menuitem", name="Run All Above Selected Cell").click()
            shown = code.locator(".jp-OutputArea-output")
            expect(shown.nth(0)).to_have_text(str(KEYS))
            expect(shown.nth(1).locator("tbody tr")).to_have_count(5)
            table = code.nth(2).locator("table")
            expect(table).to_contain_text("11.5")
            expect(table.locator("tr")).to_have_count(1 + ROWS_MAX + 1)
            gateway.publish("prices", prices(100.25))
            expect(table).to_contain_text("111.25")
            code.nth(3).locator(".cm-content").press("Shift+Enter")
            ended = code.nth(3).locator(".jp-InputPrompt")
            expect(ended).to_have_text(re.compile(r"\[\d+\]"))
            expect(page.locator(".jp-RenderedText[data-mime-type*=stderr]")).to_have_count(0)
            page.close()
