"""The size and shape of the product in figures, each with its bound; `dev.py lint` prints them.

A bound stands at what the product has reached. Tighten it when the product gets better; do not
loosen it without a reason that a reader would accept.
"""

from __future__ import annotations

import ast
import asyncio
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import grimp

from dev import ROOT
from tests.architecture.rules import PACKAGES, modules
from tests.support.gateways import running_gateway

SERVER = ("app", "conflation", "keys")  # the client of a measurement is in this process as well
SILENT = re.compile(r"#\s*(?:[-=#~]{3,}|noqa|type:\s*ignore|pragma|fmt:|!)")
RULE = re.compile(r"^(?:\d+\. |### [a-z]+(?:-[a-z]+)*-\d+)", re.MULTILINE)
ROUNDS = 3  # of a measurement: background work adds a file now and then, so the least counts


@dataclass(frozen=True, slots=True)
class Bound:
    """What a figure may be at most, or has to be at least."""

    value: float
    least: bool = False

    def admits(self, figure: float) -> bool:
        """Whether a figure keeps to it."""
        return figure >= self.value if self.least else figure <= self.value

    def __str__(self) -> str:
        return f"at {'least' if self.least else 'most'} {self.value:,g}"


BOUNDS = {
    # New: TLS, proxies, limits, audit, login, clients for asyncio and notebooks; rows that are made
    # in steps for whoever is far behind; members of messages as columns; requests answered at once;
    # a loop with an order; the share of a file that is published; files
    # that tasks of Spark read by themselves: its CSV and its JSON; where an answer says rows begin;
    # looks at writes in steps, and bodies that are read as early as their headers; flushes that a
    # timer leaves, in turns with all else; servers that are asked before Spark asks them; processes
    # of Java's that a signal at any moment ends as well; types that are shared and bounded.
    "product files": Bound(404),
    "product lines": Bound(76_930),
    "entries in the root of app/": Bound(16),  # access is the newest room
    "files in the fullest folder": Bound(15),
    "longest import chain in app": Bound(16),  # a connection knows its certificate
    # Pending entries are made of parts, and a queue whose subscription has ended drains by itself.
    "longest import chain in conflation": Bound(17),
    "longest import chain in keys": Bound(11),
    "longest import chain in pipeline": Bound(18),  # a shard is saved; a member is in an object
    "longest import chain in clients": Bound(6),
    "comments per 100 lines of code": Bound(5.0, least=True),
    "files entered by one published message": Bound(46),
    "files entered by one subscription": Bound(66),
    "semantics rules": Bound(205),  # twelve of them for access, a subject of its own
}


def figures() -> dict[str, float]:
    """Every figure of `BOUNDS`, by its name."""
    paths = modules(*PACKAGES)
    entered = asyncio.run(files_entered())
    return {
        "product files": len(paths),
        "product lines": sum(path.read_text().count("\n") for path in paths),
        "entries in the root of app/": len(entries(ROOT / "app")),
        "files in the fullest folder": max(map(files_in, folders())),
        **{
            f"longest import chain in {name}": len(longest_chain(f"tidegate.{name}"))
            for name in ("app", "conflation", "keys", "pipeline", "clients")
        },
        "comments per 100 lines of code": round(comments_per_100_lines(paths), 2),
        "files entered by one published message": entered[0],
        "files entered by one subscription": entered[1],
        "semantics rules": rules_in(semantics_pages()),
    }


def entries(folder: Path) -> list[str]:
    """The files and folders that a reader meets in a folder, besides `__init__.py`.

    A folder that has moved away leaves compiled files behind in older checkouts: it does not count.
    """
    files = (path for path in folder.rglob("*") if path.is_file())
    kept = (path.relative_to(folder) for path in files if "__pycache__" not in path.parts)
    return sorted({path.parts[0] for path in kept} - {"__init__.py"})


def files_in(folder: Path) -> int:
    """How many modules lie in a folder itself, besides `__init__.py`."""
    return sum(path.name != "__init__.py" for path in folder.glob("*.py"))


def folders() -> list[Path]:
    """The folders of the product that hold modules."""
    return sorted({path.parent for path in modules(*PACKAGES)})


def longest_chain(package: str) -> list[str]:
    """The modules of a package along its longest chain of imports, the importer first."""
    graph = grimp.build_graph("tidegate")
    inside = {package, *graph.find_descendants(package)}
    imports = {each: graph.find_modules_directly_imported_by(each) & inside for each in inside}
    return longest_path(imports)


def longest_path(arrows: dict[str, set[str]]) -> list[str]:
    """The longest path along arrows.

    Raises:
        ValueError: the arrows go round in a circle.
    """
    found: dict[str, list[str]] = {}
    open_: set[str] = set()

    def path_from(start: str) -> list[str]:
        if start not in found:
            if start in open_:
                raise ValueError(f"a circle through {start}")
            open_.add(start)
            paths = (path_from(each) for each in sorted(arrows[start]))
            found[start] = [start, *max(paths, key=len, default=[])]
        return found[start]

    return max((path_from(each) for each in sorted(arrows)), key=len)


def comments_per_100_lines(paths: Iterable[Path]) -> float:
    """How many comments give a reader a reason, for 100 lines that hold code."""
    counts = [comments_and_code(path.read_text()) for path in paths]
    return 100 * sum(each[0] for each in counts) / sum(each[1] for each in counts)


def comments_and_code(text: str) -> tuple[int, int]:
    """Comments without banners and words to linters; lines of code without docstrings."""
    comments, lines = 0, set()
    ignored = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments += SILENT.match(token.string) is None
        elif token.type not in ignored:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if first is not None and ast.get_docstring(node, clean=False) is not None:
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return comments, len(lines)


def semantics_pages() -> list[Path]:
    """Where the rules stand: one page, or a folder of pages."""
    folder = ROOT / "docs" / "semantics"
    return sorted(folder.glob("*.md")) if folder.is_dir() else [ROOT / "docs" / "semantics.md"]


def rules_in(pages: Iterable[Path]) -> int:
    """How many rules pages hold."""
    return sum(len(RULE.findall(page.read_text("utf-8"))) for page in pages)


async def files_entered() -> tuple[int, int]:
    """How many files of ours run for one published message, and for one new subscription.

    One gateway in this process, one subscriber with an interval. A message counts from its request
    to the event at the subscriber, a subscription until it has its snapshot.
    """
    published, subscribed = [], []
    async with running_gateway() as running:
        await running.topic()
        for number in range(ROUNDS):
            entered = FilesEntered()
            with entered:
                subscription = running.subscribe("conflation=20ms")
                stream = await subscription.__aenter__()
                await stream.until("group_end")
            subscribed.append(entered.count)
            try:
                entered = FilesEntered()
                with entered:
                    await running.publish({"k": "a", "n": number})
                    await stream.until("message")
                published.append(entered.count)
            finally:
                await subscription.__aexit__(None, None, None)
    return min(published), min(subscribed)


class FilesEntered:
    """Counts the files of the server whose functions are called in its block, in this thread."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._before: Callable[..., Any] | None = None

    def __enter__(self) -> None:
        self._before = sys.getprofile()
        sys.setprofile(self._called)

    def __exit__(self, *raised: object) -> None:
        sys.setprofile(self._before)

    @property
    def count(self) -> int:
        """How many there were."""
        roots = tuple(f"{ROOT / name}/" for name in SERVER)
        return sum(str(Path(name).resolve()).startswith(roots) for name in self._names)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._names.add(frame.f_code.co_filename)


def main() -> int:
    """Print every figure beside its bound; 1 if one is beyond."""
    content = True
    for name, figure in figures().items():
        admitted = BOUNDS[name].admits(figure)
        content &= admitted
        beyond = "" if admitted else "  <-- beyond its bound"
        sys.stdout.write(f"{name:42} {figure:>10,g}  {BOUNDS[name]}{beyond}\n")
    return 0 if content else 1


if __name__ == "__main__":
    sys.exit(main())
