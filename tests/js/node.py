"""A Node process that uses the client of this checkout, driven from a test."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.deadlines import HANGS_S
from tests.support.outside import node_command

HERE = Path(__file__).parent


class Node:
    """Runs pieces of JavaScript, which find `connect`, and keep what they need in `state`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, code: str) -> Any:
        """What the body of an async function returns; its integers are exact.

        Raises:
            AssertionError: it has thrown.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the process has ended"}')
        assert "error" not in answer, answer["error"]
        return answer["value"]


@contextmanager
def running_node() -> Iterator[Node]:
    """A process of its own, ended at the end."""
    process = subprocess.Popen(
        [*node_command(), str(HERE / "driver.mjs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Node(process)
    finally:
        process.terminate()
        process.communicate(timeout=HANGS_S)
