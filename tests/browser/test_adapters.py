"""The adapters with the libraries themselves, from npm: what they show is what the gateway holds.

Where npm does not answer, the stand-ins of `tests/js/adapters.test.mjs` are all there is, and the
report of the run says so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.test_examples import page_of
from tests.support.deadlines import HANGS_S
from tidegate.clients.gateway import Gateway

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

BIG = 9007199254740993
# React 18 is the last one with files that a page can load without a build.
PACKAGES = ("tabulator-tables@6", "ag-grid-community@36", "uplot@1", "react@18", "react-dom@18")
PAGE = """<!doctype html>
<link rel="icon" href="data:,">
<script src="node_modules/ag-grid-community/dist/ag-grid-community.min.js"></script>
<script src="node_modules/react/umd/react.production.min.js"></script>
<script src="node_modules/react-dom/umd/react-dom.production.min.js"></script>
<div id="tabulator"></div><div id="grid" style="height: 300px"></div>
<div id="plot"></div><div id="react"></div>
<script type="module" src="page.js"></script>
"""
SCRIPT = """
import { TabulatorFull } from "./node_modules/tabulator-tables/dist/js/tabulator_esm.min.mjs";
import uPlot from "./node_modules/uplot/dist/uPlot.esm.js";

const address = new URLSearchParams(location.search).get("gateway");
const { connect } = await import(`${address}/client.js`);
const from = (name) => import(`${address}/client/adapters/${name}.js`);
const { intoTabulator } = await from("tabulator");
const { intoGrid, rowId } = await from("ag-grid");
const { intoPlot } = await from("uplot");
const { subscriptionHook } = await from("react");
const gateway = connect(address);
while ((await gateway.topics()).length === 0) await new Promise((go) => setTimeout(go, 50));
const follow = () => gateway.subscribe("px", { interval: "50ms", orderBy: "/id" });
const element = (id) => document.getElementById(id);
const fields = ["value.id", "value.n"];

const columns = fields.map((field) => ({ title: field, field }));
const table = new TabulatorFull(element("tabulator"), { index: "id", height: 300, columns });
table.on("tableBuilt", () => intoTabulator(follow(), table));

const columnDefs = fields.map((field) => ({ field, cellDataType: false }));
intoGrid(follow(), agGrid.createGrid(element("grid"), { columnDefs, getRowId: rowId }));

const plot = new uPlot({ width: 400, height: 120, series: [{}, {}] }, [[], []], element("plot"));
intoPlot(follow(), plot, { key: ["a"], fields: ["n"] });

const useSubscription = subscriptionHook(React);
const show = ({ id, value }) => React.createElement("li", { key: id }, `${value.id} ${value.n}`);
function Wall() {
  const { rows } = useSubscription(gateway, "px", { interval: "50ms", orderBy: "/id" });
  return React.createElement("ul", {}, rows.map(show));
}
const root = ReactDOM.createRoot(element("react"));
root.render(React.createElement(React.StrictMode, {}, React.createElement(Wall)));

const textOf = (cells) => [...cells].map(({ textContent }) => textContent).join(" ");
const texts = (place, row, cell) => [...document.querySelectorAll(`${place} ${row}`)]
  .map((each) => textOf(each.querySelectorAll(cell))).sort();
window.shown = () => ({
  tabulator: texts("#tabulator", ".tabulator-row", ".tabulator-cell"),
  grid: texts("#grid", ".ag-row", ".ag-cell"),
  react: texts("#react", "ul", "li").flatMap((text) => text.match(/\\S+ \\S+/g) ?? []),
  plot: plot.data[1].at(-1),
});
"""


def has_libraries(folder: Path) -> bool:
    """Install the libraries; False where npm has none."""
    npm = shutil.which("npm")
    if npm is None:
        return False
    (folder / "package.json").write_text('{"private": true}')
    words = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
    return subprocess.run(words, cwd=folder, capture_output=True, timeout=HANGS_S).returncode == 0


def await_shown(page: Page, rows: list[str], last: int) -> None:
    wanted: dict[str, Any] = dict.fromkeys(("tabulator", "grid", "react"), rows) | {"plot": last}
    deadline = time.monotonic() + HANGS_S
    while (found := page.evaluate("window.shown?.()")) != wanted:
        assert time.monotonic() < deadline, found
        page.wait_for_timeout(50)


def publish(gateway: Gateway, *rows: tuple[str, int]) -> None:
    gateway.publish("px", [json.dumps({"id": key, "n": number}).encode() for key, number in rows])


def test_grids_charts_and_react_show_what_is_held(
    chromium: Browser, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    if not has_libraries(folder):
        record_property("stands in", "tests/js/adapters.test.mjs, as npm has no libraries")
        return
    (folder / "index.html").write_text(PAGE)
    (folder / "page.js").write_text(SCRIPT)
    with page_of(chromium, folder, tmp_path / "t.toml") as (page, gateway):
        gateway.put_topic("px", {"key": ["/id"]})
        publish(gateway, ("a", 1), ("b", 2), ("gone", 3))
        await_shown(page, ["a 1", "b 2", "gone 3"], 1)
        gateway.delete_records("px", record_key="gone")
        publish(gateway, ("a", 10), ("c", BIG))
        await_shown(page, ["a 10", "b 2", f"c {BIG}"], 10)
