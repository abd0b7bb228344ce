"""Recorded ticks through the real gateway and the real command, with a kill in the middle."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from tests.pipeline.children import Child
from tests.pipeline.naive_newest import identity
from tests.support.commands import command, serving
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_java, require_ticks

KEY = ["/tickerId", "/exchange", "/type"]
ROWS_PER_BATCH = 4_000
BATCHES = 13  # so that their numbers have one digit and two
KILLED_AFTER = 6

TOML = """\
gateway = "{address}"
[pipeline.ticks]
key = ["/tickerId", "/exchange", "/type"]
interval = "1s"
rows_per_batch = 4_000
source = {{kind = "tidegate", topic = "ticks"}}
sink = {{topic = "ticks.1s"}}
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_recorded_ticks_end_at_the_newest_of_each_key_with_nothing_doubled(tmp_path: Path) -> None:
    require_java()
    ticks = gzip.decompress(require_ticks().read_bytes()).splitlines()
    definition = tmp_path / "ticks.toml"
    commits = tmp_path / "checkpoints/ticks/spark/commits"
    with serving("--data", ":memory:") as address:
        publish(address, ticks)
        definition.write_text(TOML.format(address=address))
        running = command("pipeline", "run", str(definition), "--available-now")
        with Child(running, tmp_path) as first:
            first.await_until(lambda: committed(commits) >= KILLED_AFTER, HANGS_S)
            first.kill()
        assert KILLED_AFTER <= committed(commits) < BATCHES
        with Child(running, tmp_path) as second:
            assert second.wait(HANGS_S) == 0, second.output()
        assert committed(commits) == BATCHES
        journal = answer(address, "ticks.1s/messages?from=epoch&limit=100000")
        state = answer(address, "ticks.1s/sow?format=envelope")
        refusal = httpx2.post(
            f"{address}/v1/topics/ticks.1s/messages",
            content=ticks[0],
            headers={"Content-Type": "application/json"},
        )
        assert refusal.status_code == 403
    # Each batch brings the newest of each of its keys once, in order, whoever sent it.
    expected = [line for low in range(0, len(ticks), ROWS_PER_BATCH)
                for line in newest_lines(ticks[low : low + ROWS_PER_BATCH])]  # fmt: skip
    assert [bytes(row.value) for row in journal] == expected
    assert sorted(bytes(row.value) for row in state) == sorted(newest_lines(ticks))
    assert len(state) == 74


class Row(msgspec.Struct):
    """An envelope; the value as its bytes."""

    value: msgspec.Raw


def publish(address: str, lines: list[bytes]) -> None:
    base = f"{address}/v1/topics/ticks"
    assert httpx2.put(base, json={"key": KEY}).status_code == 201
    answered: dict[str, Any] = httpx2.post(
        f"{base}/messages",
        content=b"\n".join(lines),
        headers={"Content-Type": "application/x-ndjson"},
        timeout=HANGS_S,
    ).json()
    assert answered["messages"] == len(lines)


def answer(address: str, path: str) -> list[Row]:
    found = httpx2.get(f"{address}/v1/topics/{path}", timeout=HANGS_S)
    assert found.status_code == 200, found.text
    return msgspec.json.Decoder(Row).decode_lines(found.content)


def newest_lines(lines: list[bytes]) -> list[bytes]:
    """The newest line of each key, in order of publication."""
    newest: dict[Any, bytes] = {}
    for line in lines:
        record = identity(line, "tickerId", "exchange", "type")
        newest.pop(record, None)
        newest[record] = line
    return list(newest.values())


def committed(commits: Path) -> int:
    """Batches that Spark has noted as done."""
    return len([path for path in commits.glob("*") if path.name.isdigit()])
