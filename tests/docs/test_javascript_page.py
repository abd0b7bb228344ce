"""The examples of docs/javascript.md run, and its tables name what is there."""

from __future__ import annotations

import re

import pytest

from dev import ROOT
from tests.js.node import running_node
from tests.support.commands import serving
from tidegate.clients.gateway import Gateway

PAGE = (ROOT / "docs" / "javascript.md").read_text("utf-8")
CLIENT = ROOT / "clients" / "js"
BLOCKS = re.findall(r"```(?:js|html)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.nightly
def test_its_examples_run() -> None:
    assert len(BLOCKS) == 7
    with serving() as address, Gateway(address) as gateway, running_node() as node:
        gateway.put_topic("prices", {"key": ["/symbol"]})
        gateway.put_topic("orders", {"key": ["/id"]})
        gateway.publish("orders", [b'{"id": 7, "price": 20}'])
        gateway.publish("log", [b'"one"'])
        for block in BLOCKS:
            code = re.sub(r"</?script.*?>|^ *import .*$", "", block, flags=re.MULTILINE)
            code = code.replace("connect()", "connect('http://127.0.0.1:8080')")
            node.run(
                "const console = {log: () => {}};" + code.replace("http://127.0.0.1:8080", address)
            )
        published = list(gateway.sow("orders"))
        assert sum(b"9007199254740993" in row for row in published) == 1
        assert len(published) == 4


@pytest.mark.parametrize(
    ("module", "first"), [("transport.js", "`token`"), ("subscription.js", "`interval`")]
)
def test_each_option_is_one_of_the_code(module: str, first: str) -> None:
    """What a table names is declared; that all of it is described, `tsc` cannot know either."""
    table = PAGE[PAGE.index(f"| {first} ") :].split("\n\n")[0]
    named = {
        name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    sources = (CLIENT / "client" / module).read_text() + (
        CLIENT / "client" / "gateway.js"
    ).read_text()
    declared = set(re.findall(r"@property \{.*\} \[(\w+)\]", sources))
    assert named <= declared
    mine = re.findall(r"@property \{.*\} \[(\w+)\]", (CLIENT / "client" / module).read_text())
    assert set(mine) - named <= REQUEST


REQUEST = {"query", "headers", "json", "body", "type", "signal", "keepalive", "member", "isStream"}
"""Parts of a request, which stand in the same module as the options of a connection."""


def test_each_adapter_is_named_with_its_function() -> None:
    for path in (CLIENT / "adapters").glob("*.js"):
        names = re.findall(r"^export (?:function|const) (\w+)", path.read_text(), re.MULTILINE)
        assert names
        assert all(f"{name}" in PAGE for name in names), path
