"""The blocks on the pages beside the site's own: each is read by what it is written for.

Tests of single pages run more: `test_readme.py`, `test_options_page.py`, `test_python_page.py`,
`test_javascript_page.py`, `test_semantics_examples.py`, `test_semantics_requests.py`. Here every
command must be one that the parser takes, and every document one that can be read. A block of
another language needs a test that runs it (`RUN`).
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dev import COMMANDS
from tests.docs.site import DOCS, Block, blocks
from tests.docs.test_site_blocks import PAGES
from tests.support.commands import parsed

OTHERS = ["../README.md", *(str(it.relative_to(DOCS)) for it in sorted(DOCS.rglob("*.md")))]
BLOCKS = [block for page in OTHERS if page not in PAGES for block in blocks(page)]
RUN = {
    "filter": "test_semantics_examples.py",
    "html": "test_javascript_page.py",
    "http": "test_semantics_requests.py",
    "js": "test_javascript_page.py",
    "options": "test_options_page.py, test_semantics_examples.py",
    "story": "test_semantics_examples.py",
    "ts": "tests/js/test_units.py",
}
SHOWN = {"ini", "nginx", "text"}
"""What other programs read, or what programs print."""
_COMMAND = re.compile(r"^(?:\$ )?(?:\S*/)?(tidegate|dev\.py|python3 dev\.py) (.*)$", re.MULTILINE)


def commands(text: str) -> list[tuple[str, list[str]]]:
    """The commands of ours in a block, each without what the shell does around it."""
    joined = re.sub(r"\\\n\s*", " ", text)
    found = []
    for program, rest in _COMMAND.findall(joined):
        words = shlex.split(rest, comments=True)
        ends = [at for at, word in enumerate(words) if word in {"|", ">", "<", "&", "&&", ";"}]
        found.append((program, words[: min(ends, default=len(words))]))
    return found


@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS}))
def test_blocks_are_what_they_say(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if block.page == page:
            check(block)


def check(block: Block) -> None:
    """Read a block, in an empty folder.

    Raises:
        Exception: it is not what it says.
    """
    match block.language:
        case "sh" | "console":
            for written in re.findall(r"> ([\w.]+)$", block.text, re.MULTILINE):
                Path(written).touch()  # what a command writes, another may read
            for program, words in commands(block.text):
                if program == "tidegate":
                    assert parsed(*words).command.callback, words
                else:
                    assert words[0] in {*COMMANDS, "demo", "setup"}
        case "python" | "py":
            ast.parse(block.text)
        case "json":
            read_json(
                re.sub(r'"[^"\n]*"|…', lambda it: it[0] if it[0] != "…" else '"…"', block.text)
            )
        case "toml":
            tomllib.loads(block.text)
        case "yaml":
            YAML(typ="safe").load(block.text)
        case _:
            assert block.language in {*RUN, *SHOWN}


def read_json(text: str) -> None:
    """Read one document, or a document a line."""
    try:
        json.loads(text)
    except ValueError:
        for line in text.splitlines():
            json.loads(line)


def test_commands_are_found() -> None:
    assert sum(len(commands(block.text)) for block in BLOCKS) > 50
