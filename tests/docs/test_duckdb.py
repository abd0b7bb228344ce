"""DuckDB reads the records in every format, and the block of the page runs.

DuckDB is in no lock: nothing else uses it. The test installs it into a folder of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.docs.site import block_run_by
from tests.support.commands import environment, serving
from tests.support.deadlines import HANGS_S
from tests.support.outside import require
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.nightly

DUCKDB = "duckdb>=1.4,<3"
QUOTES = [
    b'{"symbol":"IBM","price":101.25,"volume":9007199254740993,"note":"=1+1","legs":[1,2]}',
    b'{"symbol":"AIG","price":7.5,"volume":12,"note":null,"legs":[]}',
]
RUN = """
import json, sys
import duckdb

found = duckdb.sql(sys.argv[1]).fetchall()
print(json.dumps([list(row) for row in found]))
"""
COLUMNS = "symbol, price, volume, note"
READ = {
    "application/x-ndjson": "quotes.ndjson",
    "application/json": "quotes.json",
    "text/csv": "quotes.csv",
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder with DuckDB."""
    packages = str(tmp_path_factory.mktemp("duckdb"))
    uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    ended = subprocess.run(
        [*uv, "--target", packages, DUCKDB], capture_output=True, text=True, timeout=HANGS_S
    )
    require(ended.returncode == 0, f"no DuckDB from the package index: {ended.stderr[-200:]}")
    return packages


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a gateway with records."""
    with serving() as address, Gateway(address) as gateway:
        gateway.put_topic("quotes", {"key": ["/symbol"]})
        gateway.publish("quotes", QUOTES)
        yield address


def run(program: str, packages: str, folder: Path, *arguments: str) -> str:
    """What a program prints that finds DuckDB."""
    path = f"{environment()['PYTHONPATH']}:{packages}"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],
        env={**environment(), "PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("media_type", READ)
def test_a_file_is_read(media_type: str, address: str, packages: str, tmp_path: Path) -> None:
    name = READ[media_type]
    request = Request(f"{address}/v1/topics/quotes/sow", headers={"Accept": media_type})
    with urlopen(request, timeout=HANGS_S) as answer:
        (tmp_path / name).write_bytes(answer.read())
    read = "read_csv" if name.endswith("csv") else "read_json"
    printed = run(RUN, packages, tmp_path, f"SELECT {COLUMNS} FROM {read}('{name}')")
    found: list[list[Any]] = json.loads(printed)
    note = "'=1+1" if name.endswith("csv") else "=1+1"
    assert found == [["IBM", 101.25, 9007199254740993, note], ["AIG", 7.5, 12, None]]


def test_the_block_of_the_page_shows_the_records(
    address: str, packages: str, tmp_path: Path
) -> None:
    program = block_run_by(__file__).text.replace("http://127.0.0.1:8080", address)
    shown = run(program, packages, tmp_path)
    assert shown.index("IBM") < shown.index("AIG")
