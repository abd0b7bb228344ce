"""The example for Streamlit shows the newest prices, in Streamlit's own test harness.

Streamlit is in no lock: it brings `websockets`, with which uvicorn takes another way than at users.
The test installs it into a folder of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from dev import ROOT
from tests.docs.site import block_run_by
from tests.support.commands import environment, serving
from tests.support.deadlines import HANGS_S
from tests.support.outside import require
from tests.support.ports import lasting_port
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.nightly

APP = ROOT / "examples" / "streamlit" / "app.py"
STREAMLIT = "streamlit>=1.60,<2"
RUN = """
import json, os, sys
from streamlit.testing.v1 import AppTest

app = AppTest.from_file(sys.argv[1], default_timeout=float(sys.argv[2])).run()
frame = app.dataframe[0].value if len(app.dataframe) else None
rows = None if frame is None else [list(frame.columns), *frame.to_numpy().tolist()]
said = [each.value for each in [*app.exception, *app.warning]]
print(json.dumps([said, app.title[0].value, rows]), flush=True)
os._exit(0)  # the live dict reads for as long as the process runs
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder with Streamlit and what it needs."""
    packages = str(tmp_path_factory.mktemp("streamlit"))
    uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    ended = subprocess.run(
        [*uv, "--target", packages, STREAMLIT], capture_output=True, text=True, timeout=HANGS_S
    )
    found = ended.returncode == 0
    require(found, f"no Streamlit from the package index: {ended.stderr[-200:]}")
    return packages


def test_the_table_has_the_newest_prices(packages: str, tmp_path: Path) -> None:
    with serving() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/symbol"]})
        gateway.publish("prices", [b'{"symbol":"A","price":%d.5,"size":1}' % n for n in range(3)])
        gateway.publish("prices", [b'{"symbol":"B","price":7.5,"size":2}'])
        path = f"{environment()['PYTHONPATH']}:{packages}"
        ran = subprocess.run(
            [sys.executable, "-P", "-c", RUN, str(APP), str(HANGS_S)],
            env={**environment(), "PYTHONPATH": path, "TIDEGATE_GATEWAY": address},
            cwd=tmp_path, capture_output=True, text=True, timeout=HANGS_S,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    rows = [["symbol", "price", "size"], ["B", 7.5, 2], ["A", 2.5, 1]]
    assert json.loads(ran.stdout) == [[], "Prices", rows]


def test_the_app_is_served_as_the_page_says(packages: str) -> None:
    program = "streamlit "
    [line] = block_run_by(__file__).text.splitlines()
    assert line.startswith(program)
    port = lasting_port()
    variables = {
        "STREAMLIT_SERVER_PORT": str(port),
        "STREAMLIT_SERVER_HEADLESS": "true",
        "STREAMLIT_GLOBAL_DEVELOPMENT_MODE": "false",  # it is not where pip installs usually
        "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
        "PYTHONPATH": f"{environment()['PYTHONPATH']}:{packages}",
    }
    serves = subprocess.Popen(
        [sys.executable, "-m", *line.split()], cwd=ROOT, env={**environment(), **variables},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert serves.stdout is not None
        assert any("You can now view your Streamlit app" in line for line in serves.stdout)
        with urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=HANGS_S) as answer:
            assert answer.read() == b"ok"
    finally:
        serves.terminate()
        serves.communicate(timeout=HANGS_S)
