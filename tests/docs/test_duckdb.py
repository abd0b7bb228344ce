"""DuckDB reads the records in every format, and the block of the page runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.docs.site import block_run_by
from tests.support.commands import serving
from tests.support.deadlines import HANGS_S
from tests.support.external.duckdb import DuckDb
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.nightly

QUOTES = [
    b'{"symbol":"IBM","price":101.25,"volume":9007199254740993,"note":"=1+1","legs":[1,2]}',
    b'{"symbol":"AIG","price":7.5,"volume":12,"note":null,"legs":[]}',
]
COLUMNS = "symbol, price, volume, note"
READ = {
    "application/x-ndjson": "quotes.ndjson",
    "application/json": "quotes.json",
    "text/csv": "quotes.csv",
}


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> DuckDb:
    return DuckDb(tmp_path_factory.mktemp("duckdb"))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a gateway with records."""
    with serving() as address, Gateway(address) as gateway:
        gateway.put_topic("quotes", {"key": ["/symbol"]})
        gateway.publish("quotes", QUOTES)
        yield address


@pytest.mark.parametrize("media_type", READ)
def test_a_file_is_read(media_type: str, address: str, duckdb: DuckDb, tmp_path: Path) -> None:
    name = READ[media_type]
    request = Request(f"{address}/v1/topics/quotes/sow", headers={"Accept": media_type})
    with urlopen(request, timeout=HANGS_S) as answer:
        (tmp_path / name).write_bytes(answer.read())
    read = "read_csv" if name.endswith("csv") else "read_json"
    found = duckdb.ask(f"SELECT {COLUMNS} FROM {read}('{name}')", tmp_path)
    note = "'=1+1" if name.endswith("csv") else "=1+1"
    assert found == [["IBM", 101.25, 9007199254740993, note], ["AIG", 7.5, 12, None]]


def test_the_block_of_the_page_shows_the_records(
    address: str, duckdb: DuckDb, tmp_path: Path
) -> None:
    program = block_run_by(__file__).text.replace("http://127.0.0.1:8080", address)
    shown = duckdb.run(program, tmp_path)
    assert shown.index("IBM") < shown.index("AIG")
