"""The pages of `examples/` in Chromium: orders that leave, a table of Perspective, and React."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from dev import ROOT
from tests.browser.test_tutorials import folder_served
from tests.docs.site import block_run_by
from tests.js.package import PAGE, commands_of, copy_packages, run_commands
from tests.support.commands import address_of, serving, start
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port
from tidegate.clients.gateway import Gateway

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

EXAMPLES = ROOT / "examples"
PACKAGES = "node_modules/@perspective-dev"
# The parts of Perspective that the example uses, for machines that cannot have the real one.
TABLES = """
class Table {
  constructor(index) { this.index = index; this.rows = new Map(); }
  async get_index() { return this.index; }
  async update(rows) { for (const row of rows) this.rows.set(row[this.index], row); }
  async remove(keys) { for (const key of keys) this.rows.delete(key); }
}
const tables = {};
const table = async (columns, { index, name }) => (tables[name] = new Table(index));
export default { worker: async () => ({ table, tables }) };
"""
VIEWER = """
customElements.define("perspective-viewer", class extends HTMLElement {
  async load(worker) { this.tables = worker.tables; }
  async restore(layout) { this.layout = layout; }
  async getView() {
    const [[field, way]] = this.layout.sort;
    const sign = way === "desc" ? -1 : 1;
    const rows = [...this.tables[this.layout.table].rows.values()];
    return { to_json: async () => rows.sort((a, b) => sign * (a[field] - b[field])) };
  }
});
"""
ROWS = """async () => {
  try {
    const view = await document.querySelector("perspective-viewer").getView();
    return await view.to_json();
  } catch (error) {
    return String(error); // the viewer has not loaded its table yet
  }
}"""


@contextmanager
def page_of(chromium: Browser, folder: Path, settings: Path) -> Iterator[tuple[Page, Gateway]]:
    """A page of a folder that has a server of its own, and the gateway that it follows."""
    with folder_served(folder) as origin:
        settings.write_text(f'allowed_origins = ["{origin}"]\n')
        with serving("--config", str(settings)) as address, Gateway(address) as gateway:
            page = chromium.new_page()
            complaints: list[str] = []
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(f"{origin}/?gateway={address}")
            yield page, gateway
            page.close()
            assert complaints == []


def order(number: int, left: int, state: str = "open") -> bytes:
    fields = {"id": number, "symbol": "A", "side": "buy", "left": left, "state": state}
    return json.dumps(fields).encode()


def test_an_order_leaves_the_blotter_with_its_reason(chromium: Browser, tmp_path: Path) -> None:
    with page_of(chromium, EXAMPLES / "order-blotter", tmp_path / "t.toml") as (page, gateway):
        gateway.put_topic("orders", {"key": ["/id"]})
        gateway.publish("orders", [order(n, 300) for n in (1, 2, 3)])
        page.reload()
        lines = page.locator("#orders tr")
        expect(lines).to_have_count(3)
        expect(page.locator("#state")).to_have_text("live")
        gateway.publish("orders", [order(1, 200)])
        expect(lines.filter(has_text="200")).to_have_count(1)
        gateway.publish("orders", [order(1, 0, "filled")])
        expect(page.locator("tr.gone")).to_have_text("1Abuy200done")
        expect(page.locator("#count")).to_have_text("2")
        gateway.delete_records("orders", record_key=2)
        expect(page.locator("tr.gone").filter(has_text="canceled")).to_have_count(1)
        expect(lines).to_have_count(1)


def has_perspective(folder: Path) -> bool:
    """Install the example's packages; where npm has none, write what stands in for them."""
    npm = shutil.which("npm")
    if npm is not None:
        place = folder.parent / "examples" / "perspective"  # where the page's command installs
        place.parent.mkdir()
        place.symlink_to(folder)
        words = block_run_by(__file__).text.split()
        ended = subprocess.run(words, cwd=folder.parent, capture_output=True, timeout=HANGS_S)
        if ended.returncode == 0:
            return True
    for path, text in {
        "client/dist/cdn/perspective.js": TABLES,
        "viewer/dist/cdn/perspective-viewer.js": VIEWER,
        "viewer-datagrid/dist/cdn/perspective-viewer-datagrid.js": "",
        "viewer/dist/css/themes.css": "",
    }.items():
        (folder / PACKAGES / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / PACKAGES / path).write_text(text)
    return False


def test_perspective_shows_the_prices(
    chromium: Browser, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    folder = shutil.copytree(EXAMPLES / "perspective", tmp_path / "perspective")
    is_real = has_perspective(folder)
    record_property("perspective", "real" if is_real else "a stand-in, as there is no npm")
    with page_of(chromium, folder, tmp_path / "t.toml") as (page, gateway):
        gateway.put_topic("prices", {"key": ["/symbol"]})
        lines = [b'{"symbol": "%s", "price": %d.5, "size": 100}' % (s, n) for n, s in
                 enumerate((b"A", b"B", b"C"))]  # fmt: skip
        gateway.publish("prices", lines)
        page.reload()
        expect(page.locator("#state")).to_have_text("live")
        gateway.publish("prices", [b'{"symbol": "A", "price": 9.5, "size": 200}'])
        gateway.delete_records("prices", record_key="B")
        wanted = [{"symbol": "A", "price": 9.5, "size": 200},
                  {"symbol": "C", "price": 2.5, "size": 100}]  # fmt: skip
        deadline = time.monotonic() + HANGS_S
        while (shown := page.evaluate(ROWS)) != wanted:
            assert time.monotonic() < deadline, shown
            page.wait_for_timeout(100)
        if is_real:
            expect(page.locator("perspective-viewer regular-table")).to_contain_text("9.50")


@contextmanager
def vite_served(project: Path, gateway: str) -> Iterator[str]:
    """The address of Vite's development server, which forwards to a gateway."""
    port = str(lasting_port())
    words = [str(project / "node_modules" / ".bin" / "vite"), "--host", "127.0.0.1"]
    server = subprocess.Popen(
        [*words, "--port", port, "--strictPort"],
        cwd=project,
        env={**os.environ, "TIDEGATE_GATEWAY": gateway},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert any("Local:" in line for line in server.stdout), "it has ended"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.communicate(timeout=HANGS_S)


def test_react_shows_bid_and_ask_and_which_are_old(chromium: Browser, tmp_path: Path) -> None:
    """The example is built, and served as a developer has it, by the commands of its page."""
    copy_packages(tmp_path / "tidegate")
    *_, published, started = commands_of(PAGE)
    run_commands(started.replace("npm run dev", "npm run build"), tmp_path / "tidegate")
    project = tmp_path / "tidegate" / "examples" / "react-prices"
    assert (project / "dist" / "index.html").exists()
    gateway = start("serve", "--port", "0")
    address = address_of(gateway)
    with vite_served(project, address) as origin:
        run_commands(published.replace("http://127.0.0.1:8080", address), tmp_path)
        page = chromium.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.clock.install()
        page.goto(origin)
        quote = page.locator("tr")
        expect(quote).to_have_text("IBM191.40191.60")
        expect(page.locator("p")).to_have_text("Live")
        expect(quote).to_have_class("")
        page.clock.fast_forward("00:31")  # no heartbeat is missed so far
        expect(quote).to_have_class("old")
        expect(page.locator("p")).to_have_text("Live")
        gateway.kill()
        gateway.communicate(timeout=HANGS_S)
        expect(page.locator("p")).to_contain_text("No connection", timeout=10_000)  # no silence
        page.close()
        assert complaints == []
