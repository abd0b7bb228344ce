"""The page of what waits names each module that waits, or that decides an order or a time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from dev import ROOT

WAITS = frozenset(
    {
        *("call_soon", "call_soon_threadsafe", "call_later", "call_at"),
        *("create_task", "ensure_future", "to_thread", "run_in_executor", "create_future"),
        *("Thread", "ThreadPoolExecutor", "Queue", "SimpleQueue", "PriorityQueue"),
        *("Lock", "RLock", "Semaphore", "BoundedSemaphore", "Event", "Timer", "heappush"),
    }
)
PAGES = ("docs/waiting.md", "docs/architecture.md")
"""The second one counts only with its section of schedulers."""
NAMED = re.compile(r"`([\w./-]+\.py)`")
COMMANDS = "app/cli/"


def waits_in(source: str) -> Iterator[str]:
    """Yield what a module calls in order to wait; `sleep(0)` is named once, for all."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else _name(node.func)
        if name in WAITS or (name == "sleep" and not _is_zero(node)):
            yield name


def _name(called: ast.expr) -> str:
    return called.id if isinstance(called, ast.Name) else ""


def _is_zero(call: ast.Call) -> bool:
    return [ast.unparse(each) for each in call.args] == ["0"]


def named_on_pages() -> set[str]:
    waiting, architecture = (ROOT.joinpath(page).read_text("utf-8") for page in PAGES)
    schedulers = architecture.partition("## Who runs next")[2].partition("\n## ")[0]
    return set(NAMED.findall(waiting + schedulers))


def is_named(path: str, names: set[str]) -> bool:
    return any(f"/{path}".endswith(f"/{name}") for name in names)


def test_each_module_that_waits_is_named() -> None:
    files = [path for folder in ("app", "conflation") for path in (ROOT / folder).rglob("*.py")]
    unnamed: dict[str, list[str]] = {}
    names = named_on_pages()
    for file in sorted(files):
        path = Path(file).relative_to(ROOT).as_posix()
        found = sorted(set(waits_in(file.read_text("utf-8"))))
        if found and not path.startswith(COMMANDS) and not is_named(path, names):
            unnamed[path] = found
    assert unnamed == {}


def test_what_waits_is_found() -> None:
    source = "await sleep(0)\nawait asyncio.sleep(1)\nloop.call_later(1, f)\nqueue = SimpleQueue()"
    assert sorted(waits_in(source)) == ["SimpleQueue", "call_later", "sleep"]
    assert is_named("app/streams/scheduler.py", {"scheduler.py"})
    assert not is_named("app/streams/my_scheduler.py", {"scheduler.py"})
