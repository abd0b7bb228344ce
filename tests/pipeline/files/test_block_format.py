"""An address is opened by Arrow, with the options of the source and the credentials of the task."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from tidegate.pipeline.columns.blocks import BLOCKS, pieces
from tidegate.pipeline.columns.rows import arrow_schema
from tidegate.pipeline.files.block_format import BlockFormat
from tidegate.pipeline.files.objects import Field


def of_parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": [1, 2, 3]}), sink, row_group_size=2)
    return bytes(sink.getvalue())


STORED = {
    "/bucket/a%20b.ndjson": b'{"k":1}\n{"k":2}\n',
    "/bucket/a.csv.gz": pa.compress(b"k\n1\n2\n", "gzip", asbytes=True),
    "/bucket/a.parquet": of_parquet(),
}


class Store(BaseHTTPRequestHandler):
    """As much of S3 as reading takes."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(None)

    def do_GET(self) -> None:
        self._answer(self.headers["Range"])

    def _answer(self, wanted: str | None) -> None:
        stored = STORED[self.path]
        part = stored
        if wanted is not None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            part = stored[int(first) : int(last) + 1]
        self.send_response(200 if wanted is None else 206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the library
        """Stay silent."""


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The options of a store whose credentials the environment has."""
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"endpoint_override=127.0.0.1%3A{server.server_port}&scheme=http&region=eu-west-1"
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "block_format", "bodies"),
    [
        ("a%20b.ndjson", BlockFormat("ndjson"), [b'{"k":1}\n', b'{"k":2}\n']),
        ("a.csv.gz", BlockFormat("csv", (Field("k", "long"),)), [b'{"k":1}', b'{"k":2}']),
        (
            "a.parquet",
            BlockFormat("parquet", (Field("k", "long"),)),
            [b'{"k":%d}' % n for n in (1, 2, 3)],
        ),
    ],
)
def test_tasks_read_an_address_by_themselves(
    options: str, path: str, block_format: BlockFormat, bodies: list[bytes]
) -> None:
    block_format = BlockFormat(block_format.format, block_format.fields, options=options)
    schema = arrow_schema(BLOCKS)
    row = dict.fromkeys(schema.names) | {
        "file": f"7\0s3a://bucket/{path}",
        "block": 0,
        "end": 1 << 40,
        "block_format": block_format.text,
    }
    found = pieces(iter([pa.RecordBatch.from_pylist([row], schema)]))
    assert [body for _, _, rows in found for body in rows.column("body").to_pylist()] == bodies


def test_a_file_format_comes_back_from_its_text() -> None:
    nested = Field("n", {"type": "array", "elementType": "long", "containsNull": True})
    block_format = BlockFormat("csv", (Field("k", "long"), nested), ";", False, True, "region=x")
    assert BlockFormat.of_text(block_format.text) == block_format
    assert BlockFormat.of_text(None) == BlockFormat("ndjson")
    assert isinstance(BlockFormat("ndjson").opened("file:///tmp/a%20b")[0], LocalFileSystem)
