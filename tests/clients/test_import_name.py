"""Programs import the client from `tidegate`, and nothing of it is loaded before."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate
from dev import ROOT
from tests.support.commands import environment
from tests.support.deadlines import HANGS_S

DOCUMENTS = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.ipynb")]
PROGRAMS = [*ROOT.glob("examples/**/*.py"), ROOT / "app/static/console/kit/snippets.js"]
SOURCES = {path for path in (*DOCUMENTS, *PROGRAMS) if path.name != "architecture.md"}


def test_each_name_is_there_and_known_to_type_checkers() -> None:
    tree = ast.parse(Path(tidegate.__file__).read_text())
    [checked] = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {(f"tidegate.clients.{module}", name) for name, module in tidegate._MODULES.items()}
    imported = {
        (each.module, alias.name)
        for each in checked.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    assert imported == declared
    assert sorted(tidegate.__all__) == sorted(tidegate._MODULES)
    for name in tidegate.__all__:
        assert getattr(tidegate, name).__name__ == name
        assert name in dir(tidegate)
    with pytest.raises(AttributeError, match="no attribute 'Gatway'"):
        getattr(tidegate, "Gat" + "way")


def test_nothing_is_loaded_before_its_first_use() -> None:
    code = "import sys, tidegate; print([name for name in sys.modules if 'tidegate.' in name])"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert ended.stdout == "[]\n", ended.stderr


@pytest.mark.parametrize("path", sorted(SOURCES), ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_and_examples_have_one_way_to_import(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.findall(r"(?<!logger `)tidegate\.clients[\w.]*", text)
    for names in re.findall(r"^.*from tidegate import ([\w, ]+)", text, re.MULTILINE):
        assert {name.strip() for name in names.split(",")} <= set(tidegate.__all__)
