"""Bill of materials, licenses and audit: made and asked by the real tools."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from dev import ROOT

# By its path: a tool of ours brings a package that is called `requirements`, too.
supply = SimpleNamespace(**runpy.run_path(str(ROOT / "requirements" / "supply.py")))
AFFECTED = "msgspec"


@pytest.mark.nightly
def test_the_bill_has_what_is_locked_and_nothing_else() -> None:
    bill = supply.materials()
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "tidegate"
    found = {supply.plain(it["name"]) for it in bill["components"]}
    assert {"uvicorn", "fastapi", "redis", "pyspark"} <= found
    assert found <= supply.locked()
    assert not {"pytest", "ruff", "pip-audit"} & found
    assert all("version" in it and "purl" in it for it in bill["components"])
    lines = list(supply.licenses(bill))
    assert len(lines) == len(found)
    assert [line for line in lines if supply.NOT_STATED in line] == []
    strong = [line for line in lines if "AGPL" in line or "GPL-3" in line]
    assert strong == []


def test_a_licence_that_is_not_stated_shows() -> None:
    stated = [
        {"license": {"id": "MIT"}},
        {"expression": "MIT"},
        {"license": {"name": "Text\nof it"}},
    ]
    bill = {
        "components": [
            {"name": "B_b", "version": "1"},
            {"name": "a", "version": "2", "licenses": stated},
        ]
    }
    assert list(supply.licenses(bill)) == ["a 2: MIT, Text", "B_b 1: not stated"]


@contextmanager
def database(affected: str) -> Iterator[str]:
    """A database of vulnerabilities in which one package has one."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known: dict[str, Any] = {}
            if asked["package"]["name"] == affected:
                package = {"name": affected, "ecosystem": "PyPI"}
                known = {
                    "vulns": [
                        {
                            "id": "TEST-1",
                            "summary": "for a test",
                            "details": "for a test",
                            "modified": "2026-01-01T00:00:00Z",
                            "published": "2026-01-01T00:00:00Z",
                            "affected": [{"package": package, "ranges": []}],
                        }
                    ]
                }
            body = json.dumps(known).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/query"
        server.shutdown()


def audited(address: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "requirements" / "supply.py"), "audit"]
    return subprocess.run([*command, "--osv-url", address], capture_output=True, text=True)


@pytest.mark.nightly
def test_a_known_vulnerability_fails_the_build() -> None:
    with database(AFFECTED) as address:
        done = audited(address)
    assert done.returncode == 1, done.stdout
    assert AFFECTED in done.stdout
    assert "TEST-1" in done.stdout


@pytest.mark.nightly
def test_without_any_the_build_goes_on() -> None:
    with database("") as address:
        done = audited(address)
    assert done.returncode == 0, done.stdout
    assert "No known vulnerabilities" in done.stdout


@pytest.mark.nightly
def test_a_database_that_is_out_fails_nothing_and_is_said_in_a_line() -> None:
    done = audited("http://127.0.0.1:9/v1/query")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Not audited: the database of vulnerabilities cannot be reached.\n"


@pytest.mark.nightly
def test_an_audit_that_is_asked_wrongly_is_no_outage() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "requirements" / "supply.py"), "audit", "--no-such-option"],
        capture_output=True,
    )
    assert done.returncode not in (0, 1)
