"""The rules of docs/semantics and the tests that hold them.

`python -m tests.docs.rules [ID...]` lists the tests of these rules, or of all.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dev import ROOT

PAGES = ROOT / "docs" / "semantics"
NIGHTLY = " (nightly)"
TEXTS = ("app", "clients", "conflation", "docs", "keys", "pipeline", "pyspark_tidegate", "tests")
_ID = r"[a-z]+-\d+"
_HEADING = re.compile(rf"^### ({_ID})$", re.MULTILINE)
_NAMED = re.compile(rf"\b[Rr]ules?\s+\[?((?:{_ID}(?:,\s+|\s+and\s+|\s+to\s+)?)+)")
_NUMBERED = re.compile(r"\b[Rr]ules?\s+\d+\b")
# State machines import the `rule` of hypothesis.
_MARKS = {"rule", "pytest.mark.rule"}


class Rule(NamedTuple):
    """One rule: its id, its page, and what stands below its heading."""

    id: str
    page: Path
    body: str

    @property
    def claim(self) -> str:
        """The first paragraph."""
        return self.body.strip().split("\n\n")[0]


@cache
def rules() -> list[Rule]:
    """Return every rule, page by page."""
    return [rule for page in sorted(PAGES.glob("*.md")) for rule in rules_of(page)]


def rules_of(page: Path) -> list[Rule]:
    """Return the rules of a page in their order."""
    _, *parts = _HEADING.split(page.read_text("utf-8"))
    return [Rule(found, page, body) for found, body in zip(parts[::2], parts[1::2], strict=True)]


@cache
def marked_tests() -> dict[str, list[str]]:
    """Return the tests that `@rule` marks, by rule, as `path::name`, nightly ones marked so."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        if "rule(" not in text:
            continue
        module = ast.parse(text)
        nightly = nightly_tests(module)
        for id_, name in marked(module):
            suffix = NIGHTLY if {"*", name} & nightly else ""
            found.setdefault(id_, []).append(f"{path.relative_to(ROOT)}::{name}{suffix}")
    return found


def marked(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield rule and test of each mark in a module, the module's own as `*`."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                yield from ((id_, node.name) for id_ in ids_of(decorator))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield from ((id_, "*") for id_ in ids_of(node.value))


def nightly_tests(module: ast.Module) -> set[str]:
    """Return the tests of a module that are nightly in all their variants; `*` for the module."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if any(ast.unparse(each) == "pytest.mark.nightly" for each in node.decorator_list):
                found.add(node.name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            found |= {"*"} if "pytest.mark.nightly" in ast.unparse(node.value) else set()
    return found


def ids_of(expression: ast.expr) -> Iterator[str]:
    """Yield the ids of the calls of `rule` in a decorator or a list of marks."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _MARKS:
            yield from (str(ast.literal_eval(argument)) for argument in node.args)


def named_in(text: str) -> set[str]:
    """Return the rules that a text names, as in `rules interval-3 and interval-4`."""
    return {id_ for group in _NAMED.findall(text) for id_ in re.findall(_ID, group)}


@cache
def texts() -> dict[str, str]:
    """Return product, tests and pages, by path."""
    paths = [
        path
        for folder in TEXTS
        for path in sorted((ROOT / folder).rglob("*.*"))
        if path.suffix in {".py", ".md", ".toml"}
    ]
    paths += [ROOT / "README.md", ROOT / "CHANGELOG.md"]
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in paths}


def named() -> dict[str, set[str]]:
    """Return the rules that docstrings, comments and pages name, by file."""
    return {path: ids for path, text in texts().items() if (ids := named_in(text))}


def numbered_in(text: str) -> list[str]:
    """Return what names a rule by a number, which is no id."""
    return _NUMBERED.findall(text)


def main(wanted: list[str]) -> None:
    """Print rules with the tests behind them."""
    tests = marked_tests()
    for rule in rules():
        if not wanted or rule.id in wanted:
            sys.stdout.write(f"{rule.id}: {' '.join(rule.claim.split())}\n")
            sys.stdout.writelines(f"    {test}\n" for test in tests.get(rule.id, []))


if __name__ == "__main__":
    main(sys.argv[1:])
