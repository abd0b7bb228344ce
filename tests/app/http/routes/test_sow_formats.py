"""The formats of the state of the world: chosen by Accept, with the same records in each."""

from __future__ import annotations

import asyncio
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from unittest import mock
from urllib.request import Request, urlopen

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.app.access.test_authorization import ROOT
from tests.app.access.test_entitlement import AT, BOTH, FIELDS, ROWS, leaks, narrowed_gateway
from tests.app.http.formats.reading import read_back
from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tidegate.app.http.formats import columns
from tidegate.app.http.formats.choice import ARROW, CSV
from tidegate.app.http.requests import JSON, NDJSON

SOW: Final = "/v1/topics/px/sow"
MERGE: Final = {"Content-Type": "application/merge-patch+json"}
BY_TYPE: Final = {NDJSON: "ndjson", JSON: "json", CSV: "csv", ARROW: "arrow"}
PUBLISHED: Final = [
    b'{"k":"=1+1","n":9007199254740993,"px":101.25,"live":true,"at":{"desk":"a","x":[1.50]}}',
    b'{"k":"b","n":-1,"px":0.1000000000000000055,"live":false,"note":"say \\"hi\\"\\r\\n"}',
    b'{"k":"c","n":0,"px":7,"live":null}',
]


async def filled(running: Running, **more: Any) -> None:
    await running.topic(**more)
    await running.publish_lines(b"\n".join(PUBLISHED))


async def records(running: Running, media_type: str, **params: str) -> list[dict[str, Any]]:
    """The records as one format has them."""
    answer = await running.http.get(SOW, params=params, headers={"Accept": media_type})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == media_type
    return read_back(BY_TYPE[media_type], answer.content)


CHOICES: Final = {
    "text/csv": CSV,
    ARROW: ARROW,
    "text/*": CSV,
    "TEXT/CSV; header=present": CSV,
    "text/csv, */*;q=0.1": CSV,
    "text/csv;q=0.5, application/json;q=0.4": CSV,
    "text/csv;q=0.5, application/json": JSON,
    f"{ARROW}, text/csv;q=0.9": ARROW,
    "application/json, text/plain, */*": JSON,
    "application/json;q=0.2, */*;q=0.3": NDJSON,
    "text/html, application/xhtml+xml, */*;q=0.8": NDJSON,
    "*/*": NDJSON,
    "*/*, application/x-ndjson;q=0, application/json;q=0.0": CSV,
    "*/*, application/*;q=0": CSV,
}


@rule("topic-18")
async def test_accept_chooses_the_format() -> None:
    async with running_gateway() as running:
        await filled(running)
        for accept, wanted in CHOICES.items():
            answer = await running.http.get(SOW, headers={"Accept": accept})
            found = answer.headers["content-type"].partition(";")[0]
            assert (found, answer.headers["vary"]) == (wanted, "Accept"), accept


@rule("topic-18")
async def test_what_accept_leaves_out_is_a_problem_that_names_the_formats() -> None:
    async with running_gateway() as running:
        await filled(running)
        for accept in ("text/html", "text/csv;q=0", "application/pdf, */*;q=0", "zzq", ""):
            answer = await running.http.get(SOW, headers={"Accept": accept})
            assert (answer.status_code, answer.json()["code"]) == (406, "not-acceptable"), accept
            assert answer.headers["vary"] == "Accept"
            assert all(media_type in answer.json()["detail"] for media_type in BY_TYPE)


async def test_without_pyarrow_a_problem_says_what_to_install() -> None:
    async with running_gateway() as running:
        await filled(running)
        with mock.patch("tidegate.app.http.formats.choice.find_spec", return_value=None):
            answer = await running.http.get(SOW, headers={"Accept": ARROW})
            assert (answer.status_code, answer.json()["code"]) == (406, "not-acceptable")
            assert "install the extra archive" in answer.json()["detail"]
            also = await running.http.get(SOW, headers={"Accept": f"{ARROW}, */*;q=0.1"})
            assert also.headers["content-type"] == NDJSON


@rule("topic-19", "topic-20")
async def test_every_format_holds_the_same_records() -> None:
    async with running_gateway() as running:
        await filled(running)
        wanted = await records(running, NDJSON)
        assert wanted[1]["px"] == Decimal("0.1000000000000000055")
        for media_type in BY_TYPE:
            assert await records(running, media_type) == wanted, media_type


async def test_a_query_is_the_same_in_every_format() -> None:
    queries: list[dict[str, str]] = [
        {"filter": "/n > -1"},
        {"order_by": "/n DESC"},
        {"order_by": "/n", "top_n": "1", "skip_n": "1"},
        {"select": "[-/,+/px,+/at/x]"},
        {"as_of": "2001-01-01T00:00:00Z"},
        {"as_of": "2999-01-01T00:00:00Z", "filter": "/live"},
        {"format": "envelope"},
        {"format": "envelope", "select": "[-/k]"},
        {"filter": "FALSE"},
    ]
    async with running_gateway() as running:
        await filled(running)
        for params in queries:
            wanted = await records(running, NDJSON, **params)
            for media_type in (JSON, CSV, ARROW):
                assert await records(running, media_type, **params) == wanted, (media_type, params)


async def test_the_header_says_the_same_for_head() -> None:
    async with running_gateway() as running:
        await filled(running)
        for media_type in BY_TYPE:
            headers = {"Accept": media_type}
            get = await running.http.get(SOW, headers=headers)
            head = await running.http.head(SOW, headers=headers)
            assert head.content == b""
            for name in ("content-type", "vary", "tidegate-bookmark"):
                assert head.headers[name] == get.headers[name]


async def test_texts_and_bytes_are_one_column() -> None:
    async with running_gateway() as running:
        for kind, media_type, wanted in (
            ("text", "text/plain", "=1"),
            ("binary", "application/octet-stream", "PTE="),
        ):
            await running.http.delete("/v1/topics/px")
            await running.topic(key=(), type=kind, retain=True)
            empty = await running.http.get(SOW, headers={"Accept": CSV})
            assert empty.text == '"value"\r\n'
            await running.http.post(
                "/v1/topics/px/messages", content=b"=1", headers={"Content-Type": media_type}
            )
            for accept in BY_TYPE:
                assert await records(running, accept) == [{"value": wanted}], accept


@rule("topic-20")
async def test_the_key_and_the_schema_are_columns_before_there_are_records() -> None:
    schema = {"properties": {"px": {"type": "number"}, "n": {"type": "integer"}}}
    async with running_gateway() as running:
        await running.topic(schema=schema)

        async def types(**params: str) -> dict[str, str]:
            answer = await running.http.get(SOW, params=params, headers={"Accept": ARROW})
            found = pa.ipc.open_stream(answer.content).read_all().schema
            return {field.name: str(field.type) for field in found}

        assert await types() == {"k": "null", "px": "double", "n": "int64"}
        assert await types(select="[-/n]") == {"k": "null", "px": "double"}
        assert await types(format="envelope") == dict.fromkeys(
            ("topic", "op", "key", "bookmark", "value"), "null"
        )
        csv = await running.http.get(SOW, headers={"Accept": CSV})
        assert csv.text == '"k","px","n"\r\n'
        await running.publish({"k": "a", "px": 1, "z": True})
        assert await types() == {"k": "string", "px": "double", "n": "int64", "z": "bool"}


async def test_too_many_columns_are_refused_before_anything_is_sent() -> None:
    async with running_gateway() as running:
        await running.topic()
        await running.publish(*[{"k": n, f"f{n}": n} for n in range(columns.COLUMNS_MAX)])
        for media_type in (CSV, ARROW):
            answer = await running.http.get(SOW, headers={"Accept": media_type})
            assert (answer.status_code, answer.json()["code"]) == (406, "not-acceptable")
            found = await records(running, media_type, select="[-/,+/k,+/f7]")
            assert (len(found), found[7]) == (columns.COLUMNS_MAX, {"k": 7, "f7": 7})


@rule("access-10")
@pytest.mark.parametrize("media_type", BY_TYPE)
async def test_hidden_rows_and_fields_are_in_no_format(tmp_path: Path, media_type: str) -> None:
    async with narrowed_gateway(tmp_path) as running:
        schema = {"properties": {"schemacanary": {"type": "string"}}}
        patched = await running.http.patch(AT, json={"schema": schema}, headers=ROOT | MERGE)
        assert patched.status_code == 200, patched.text
        for headers in (ROWS, FIELDS, BOTH):
            for query in ("", "?format=envelope", "?select=[%2B/secret]", "?order_by=/k"):
                accept = {**headers, "Accept": media_type}
                answer = await running.http.get(f"{AT}/sow{query}", headers=accept)
                assert answer.status_code == 200
                assert b"one" in answer.content
                assert leaks(answer.content, headers) == []
                assert headers is ROWS or b"desk" not in answer.content
                assert b"schemacanary" not in answer.content


@pytest.mark.system
async def test_tools_read_it_by_its_address() -> None:
    async with running_gateway() as running:
        await filled(running)
        address = running.address + SOW
        frame = await asyncio.to_thread(
            pd.read_csv, address, storage_options={"Accept": CSV}, dtype={"px": str}
        )
        assert frame["n"].tolist() == [9007199254740993, -1, 0]
        assert frame["px"].tolist() == ["101.25", "0.1000000000000000055", "7"]
        assert frame["k"].tolist() == ["'=1+1", "b", "c"]
        assert json.loads(frame["at"][0]) == {"desk": "a", "x": [1.5]}

        def opened(media_type: str) -> io.BytesIO:
            with urlopen(Request(address, headers={"Accept": media_type})) as answer:
                return io.BytesIO(answer.read())

        stream = await asyncio.to_thread(opened, ARROW)
        by_polars = pl.read_ipc_stream(stream).to_dict(as_series=False)
        by_arrow = pa.ipc.open_stream(stream.getvalue()).read_all().to_pydict()
        for found in (by_polars, by_arrow):
            assert found["n"] == [9007199254740993, -1, 0]
            assert found["px"] == [Decimal("101.25"), Decimal("0.1000000000000000055"), Decimal(7)]
            assert found["live"] == [True, False, None]
        lines = await asyncio.to_thread(opened, CSV)
        assert pl.read_csv(lines)["n"].to_list() == [9007199254740993, -1, 0]
