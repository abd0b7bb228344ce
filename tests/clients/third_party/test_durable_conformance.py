"""The conformance tests of the Durable Streams protocol, unmodified, read from a gateway.

What writes is theirs and no request of the gateway's; `conformance/shim.py` does it for them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.third_party.conformance.shim import shim_before
from tests.clients.third_party.libraries import HERE, npm_folder
from tests.support.commands import serving
from tests.support.outside import node_command

pytestmark = pytest.mark.nightly

FOLDER: Final = HERE / "conformance"
TESTS: Final = "durable.test.mjs"
PATTERN: Final = "^(?!.*(Fork|Idempotent Producer|Stream Closure|TTL|subscription API))"
"""Not the groups about what only writers do: the gateway has other requests for it, or none."""

SEQUENCES: Final = "`Stream-Seq` of writers: the gateway has numbered producers"
OF_THE_SHIM: Final = "answers to writes, which are not the gateway's"
STRICT: Final = "the gateway refuses a parameter that it does not know, which may be misspelled"
BINARY: Final = "bytes: the gateway serves JSON alone"
NOT_FOR_US: Final = {
    "should enforce sequence ordering with seq": SEQUENCES,
    "should enforce sequence ordering": SEQUENCES,
    'should enforce lexicographic seq ordering ("2" then "10" rejects)': SEQUENCES,
    "should reject duplicate seq values": SEQUENCES,
    "should enforce case-sensitive seq ordering": SEQUENCES,
    "out-of-order seq values are rejected": SEQUENCES,
    "should include X-Content-Type-Options: nosniff on PUT responses": OF_THE_SHIM,
    "should include X-Content-Type-Options: nosniff on POST responses": OF_THE_SHIM,
    "should ignore unknown query parameters": STRICT,
    "base64 SSE catch-up pairs every data event with a control event": BINARY,
    "should auto-detect binary streams and return base64 encoded data in SSE mode": BINARY,
    "should include Stream-SSE-Data-Encoding header for binary streams": BINARY,
    "should handle large binary payload with auto-detected base64 encoding": BINARY,
    "should handle binary data with special bytes using auto-detected base64 encoding": BINARY,
    "should auto-detect base64 encoding for application/x-protobuf streams": BINARY,
    "should auto-detect base64 encoding for image/png streams": BINARY,
}
"""Tests that fail, each with the reason why it does not apply."""
PASSING_MIN: Final = 142
ORIGIN: Final = "https://example.com"
"""Of the page that one of the tests asks for."""
TEST_MS: Final = 60_000
RUN_S: Final = 900


async def test_reads_are_those_of_the_protocol(tmp_path: Path) -> None:
    results = await run_of_tests(tmp_path)
    failed = {each["title"] for each in results if each["status"] == "failed"}
    assert failed == set(NOT_FOR_US)
    assert sum(each["status"] == "passed" for each in results) >= PASSING_MIN


async def run_of_tests(place: Path) -> list[dict[str, Any]]:
    """Run the tests against a gateway; what became of each."""
    folder = npm_folder(FOLDER)
    shutil.copy(FOLDER / TESTS, folder)
    report = place / "report.json"
    vitest = folder / "node_modules" / "vitest" / "vitest.mjs"
    arguments = ["run", TESTS, "--reporter=json", f"--outputFile={report}"]
    arguments += [f"--testNamePattern={PATTERN}", f"--testTimeout={TEST_MS}"]
    with serving(TIDEGATE_ALLOWED_ORIGINS=ORIGIN) as gateway:
        async with shim_before(gateway) as address:
            process = await asyncio.create_subprocess_exec(
                *node_command(),
                vitest,
                *arguments,
                cwd=folder,
                env={**os.environ, "CONFORMANCE_TEST_URL": address, "CI": "1"},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                async with asyncio.timeout(RUN_S):
                    await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    document = json.loads(report.read_text())
    return [each for file in document["testResults"] for each in file["assertionResults"]]
