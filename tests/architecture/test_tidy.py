"""The tree keeps the house rules, and each rule is shown to find what breaks it."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from dev import ROOT
from tests.architecture import rules
from tests.architecture.rules import PACKAGES, PURE, findings, modules


def planted(rule: rules.Rule, text: str) -> list[str]:
    """What a rule finds in a text."""
    return list(rule(ast.parse(text), text))


def test_no_name_is_empty_of_meaning() -> None:
    assert findings(rules.banned_names, [ROOT / "dev.py", *modules(*PACKAGES)]) == []


@pytest.mark.parametrize(
    "text",
    [
        "class TopicManager: ...",
        "def on_error_handler(): ...",
        "async def process(): ...",
        "def read(timeout): ...",
        "def read(*, data): ...",
        "string_utils = 1",
        "self.handlers = []",
        "for helper in (): ...",
        "class C:\n    def process(self): ...",
        "data: int = 1",
        "lambda data: 1",
        "def find(key): ...",
        "def data_received(self, key): data = key",
    ],
)
def test_a_name_empty_of_meaning_is_found(text: str) -> None:
    assert planted(rules.banned_names, text)


@pytest.mark.parametrize(
    "text",
    [
        "write_timeout_s = 1",
        "metadata = 1",
        "process = start()",
        "call(timeout=1, data=2)",
        "def handle(): ...",
        "def data_line(): ...",
        "def data_received(self, data): ...",
        "sorted(rows, key=len)",
    ],
)
def test_a_telling_name_passes(text: str) -> None:
    assert planted(rules.banned_names, text) == []


def test_no_module_is_named_for_nothing() -> None:
    assert [path for path in modules(*PACKAGES) if rules.banned_module_name(path.stem)] == []
    assert all(map(rules.banned_module_name, ["utils", "topic_helpers", "manager", "data"]))
    assert not any(map(rules.banned_module_name, ["topic", "metadata", "definition"]))


def test_pure_packages_import_only_what_has_no_effect() -> None:
    assert findings(rules.impure_imports, modules(*PURE)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from os import path",
        "import asyncio.tasks",
        "from . import lane",
        "import httpx2",
    ],
)
def test_an_import_with_effects_is_found(text: str) -> None:
    assert planted(rules.impure_imports, text)


def test_pure_packages_do_no_input_or_output() -> None:
    assert findings(rules.impure_syntax, modules(*PURE)) == []


@pytest.mark.parametrize(
    "text", ["print(1)", "open('a')", "read = open", "async def f(): ...", "__import__('time')"]
)
def test_input_and_output_are_found(text: str) -> None:
    assert planted(rules.impure_syntax, text)


@pytest.mark.parametrize("package", PURE)
@pytest.mark.parametrize(
    "text", ["datetime.now(UTC)", "datetime.today()", "datetime.utcnow()", "date.today()"]
)
def test_a_pure_package_that_reads_a_clock_is_found(package: str, text: str) -> None:
    planted_text = f"from datetime import UTC, date, datetime\n\nprint({text})\n"
    assert "the caller gives the time" in ruff(f"{package}/text/planted.py", planted_text)


def ruff(name: str, text: str) -> str:
    """What the linter says of a text under that name."""
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", name, "-"]
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    "name",
    ["pyproject.toml", "README.md", "docker-compose.yml", "app", "conflation", "keys", "tests"],
)
def test_the_top_level_has_the_given_names(name: str) -> None:
    assert (ROOT / name).exists()
