"""The examples of docs/python.md run, and its tables name what is there."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dev import ROOT
from tests.support.commands import environment, serving
from tests.support.deadlines import HANGS_S
from tidegate.clients.aio.gateway import AsyncGateway
from tidegate.clients.gateway import Gateway
from tidegate.clients.live.live import Live

PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")
EVERY = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
KILLED = next(block for block in EVERY if "fresh.replace" in block)  # runs until it is killed
BLOCKS = [block for block in EVERY if block != KILLED]


@pytest.mark.nightly
def test_its_examples_run() -> None:
    assert len(BLOCKS) == 9
    with serving() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/symbol"]})
        gateway.put_topic("orders", {"key": ["/id"]})
        gateway.publish("prices", [b'{"symbol": "IBM", "price": 20}'])
        gateway.publish("orders", [b'{"id": 7, "price": 20}'])
        gateway.publish("log", [b'"one"'])
        printed = []
        for block in BLOCKS:
            code = block.replace("http://127.0.0.1:8080", address)
            ended = subprocess.run(
                [sys.executable, "-P", "-W", "error", "-c", code],
                env=environment(), capture_output=True, text=True, timeout=HANGS_S,
            )  # fmt: skip
            assert (ended.returncode, ended.stderr) == (0, ""), block
            assert ended.stdout
            printed.append(ended.stdout)
        assert "500\n" in printed
        orders = list(gateway.sow("orders"))
        assert any(b"9007199254740993" in row for row in orders)
        assert not any(b'"id":7,' in row or b'"price":10' in row for row in orders)


@pytest.mark.nightly
def test_what_was_killed_continues(tmp_path: Path) -> None:
    with serving() as address, Gateway(address) as gateway:
        gateway.put_topic("trades", {"key": ["/id"], "conflation": "off"})
        command = [
            sys.executable,
            "-P",
            "-u",
            "-c",
            KILLED.replace("http://127.0.0.1:8080", address),
        ]
        seen = []
        for first in (0, 3, 6):
            gateway.publish(
                "trades", [b'{"id": %d}' % number for number in range(first, first + 3)]
            )
            with subprocess.Popen(
                command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
            ) as reader:
                assert reader.stdout is not None
                for line in reader.stdout:
                    seen.append(ast.literal_eval(line)["id"])
                    if seen[-1] == first + 2:
                        break
                reader.kill()
        assert list(dict.fromkeys(seen)) == list(range(9))
        assert len(seen) <= 11  # the row at each kill may come twice


def named(first: str) -> set[str]:
    """What the first column of a table names."""
    table = PAGE[PAGE.index(f"| `{first}") :].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()]
    return {name for cell in cells for name in re.findall(r"`(\w+)", cell)}


def test_each_argument_and_member_is_described() -> None:
    assert named("base_url") == set(inspect.signature(Gateway).parameters)
    assert named("options") == set(inspect.signature(Gateway.live).parameters) - {"self", "topic"}
    told = {"granted", "is_ready", "end", "error"}  # made by the constructor
    assert named("changes") - told <= set(dir(Live))


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    for name, method in inspect.getmembers(AsyncGateway, inspect.isfunction):
        if not name.startswith("_"):
            other = inspect.signature(getattr(Gateway, name)).parameters
            assert list(inspect.signature(method).parameters) == list(other), name
    shown = {name for name in vars(Gateway) if not name.startswith("_")} - set(vars(AsyncGateway))
    missing = set(
        re.findall(r"`(\w+)`", PAGE[PAGE.index("## asyncio") : PAGE.index("## Sessions")])
    )
    of_the_pipeline = {"topics_page", "publish_body", "journal", "journal_page", "records"}
    of_the_pipeline.add("highest_sequence")
    assert shown - missing == of_the_pipeline
