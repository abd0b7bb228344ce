"""The product uses no private name of asyncio, uvicorn, starlette or CPython."""

from __future__ import annotations

import ast
import asyncio
import selectors
from collections.abc import Mapping
from typing import Any

import pytest
import uvicorn
from sse_starlette import EventSourceResponse

from tests.architecture.private_names import all_findings, private_names, shared, unreported


def test_the_product_uses_none() -> None:
    assert all_findings() == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from asyncio.base_events import _run_until_complete_cb", "_run_until_complete_cb"),
        ("import asyncio, _socket", "_socket"),
        ("from starlette._utils import collapse_excgroups", "_utils"),
        ("getattr(loop, '_ready')", "_ready"),
        ("vars(transport).pop('_read_ready_cb', None)", "_read_ready_cb"),
        ("for name in ('_read_ready_cb', '_write_ready'): undo(name)", "_write_ready"),
        ("ready = operator.attrgetter('_ready')", "_ready"),
    ],
)
def test_a_planted_use_is_found(line: str, name: str) -> None:
    assert any(name in each for each in private_names(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "class Own:\n    __slots__ = ('_ready', '_closed')",
        "import asyncio.events",
        "getattr(loop, 'time')",
        "text.removesuffix('_ms')",
        "vars(found).pop('__dict__')",
    ],
)
def test_what_is_public_or_our_own_is_not(line: str) -> None:
    assert not [*private_names(ast.parse(line))]


class Overriding(EventSourceResponse):
    async def _send_with_timeout(self, send: Any, message: Mapping[str, Any]) -> None:
        """Planted."""


class Reading(asyncio.SelectorEventLoop):
    def count(self) -> int:
        return len(self._ready)  # type: ignore[attr-defined]  # planted


class Hiding(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._captured_signals = []


class Fine(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self._watchdog = None


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Overriding, {"_send_with_timeout"}),
        (Reading, {"_ready"}),
        (Hiding, {"_captured_signals"}),
        (Fine, set[str]()),
    ],
)
def test_names_that_are_shared_with_a_base_are_found(kind: type, names: set[str]) -> None:
    assert shared(kind) == names


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("handle._run()  # noqa: SLF001 - as asyncio does", True),
        ("handle._run()  # noqa: PLC0415, SLF001", True),
        ("handle._run()  # noqa", True),
        ("open(path)  # noqa: PTH123 - a path costs as much again", False),
        ("handle.run()", False),
    ],
)
def test_ruff_is_not_told_to_look_away(line: str, is_found: bool) -> None:
    assert bool([*unreported(line)]) is is_found
