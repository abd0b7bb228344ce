"""Every block of code in the README and on the pages is run by a test, or says why it is not.

The pages of the site's own (`PAGES`) run from top to bottom, each against a gateway of its own. A
comment before a block says what is unusual about it:

- `<!-- background -->`: it does not end by itself; it runs beside the following blocks,
- `<!-- not run: REASON -->`: it needs what no test machine has.

What blocks have printed is what the next block in the language `text` shows; `…` is anything.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dev import ROOT
from tests.docs.site import DOCS, Block, blocks
from tests.docs.stories import play
from tests.docs.test_options_page import answer_to, example_of
from tests.js.node import running_node
from tests.support.commands import environment, serving
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_curl, require_java
from tests.support.ports import lasting_port

FOLDERS = ("coming-from", "tutorials")
PAGES = [str(it.relative_to(DOCS)) for name in FOLDERS for it in sorted((DOCS / name).glob("*.md"))]
PAGES += ["../README.md", "concepts.md", "faq.md", "index.md", "quick-start.md"]
SPARK = "tutorials/spark.md"
BIN = str(Path(sys.executable).parent)
USUAL = "http://127.0.0.1:8080"
NOT_RUN = 18
"""How many blocks of these pages are not run."""


class PageRun:
    """A page while its blocks run, in a folder of its own that has the examples."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self.port = str(lasting_port())  # of the reader's own server, 8001 or 5173 on the pages
        self.beside: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.printed: Path | None = None
        shutil.copytree(ROOT / "examples", folder / "examples")

    def run(self, block: Block) -> None:
        text = block.text.replace(USUAL, self.address)
        text = text.replace("8001", self.port).replace("5173", self.port)
        text = re.sub(r"(\$PWD/)?\.venv/bin", BIN, text)
        match block.language:
            case "sh":
                self.command(["bash", "-eo", "pipefail", "-c", text], block)
            case "python":
                self.command([sys.executable, "-P", "-W", "error", "-c", text], block)
            case "js":
                with running_node() as node:
                    code = re.sub(r"^ *import .*$", "", text, flags=re.MULTILINE)
                    node.run("const console = {log: () => {}};" + code)
            case "text":
                self.shows(text)
            case "json":
                json.loads(text)
            case "toml":
                tomllib.loads(text)
            case "yaml":
                YAML(typ="safe").load(text)
            case "story":
                play(text)
            case "options":
                example = example_of(text)
                assert answer_to(example) == example.answer
            case _:
                raise AssertionError(f"nothing runs a block of {block.language}")

    def command(self, command: list[str], block: Block) -> None:
        output = self.folder / f".output-{time.monotonic_ns()}"
        with output.open("wb") as stdout:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                stdout=stdout, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.printed = output
        if block.mark == "background":
            self.beside.append((process, output))
        else:
            code = process.wait(timeout=HANGS_S)
            assert code == 0, f"{block.page}: {block.text}\n{output.read_text()}"

    def environment(self) -> dict[str, str]:
        path = f"{BIN}:{os.environ['PATH']}"
        return {**environment(), "PATH": path, "TIDEGATE_GATEWAY": self.address}

    def shows(self, text: str) -> None:
        """Wait until each line of a block has been printed by a command of the page."""
        wanted = [line for line in text.splitlines() if line.strip()]
        outputs = [self.printed, *(output for _, output in self.beside)]
        deadline = time.monotonic() + HANGS_S
        while True:
            seen = "\n".join(each.read_text("utf-8") for each in outputs if each)
            missing = [line for line in wanted if not pattern_of(line).search(seen)]
            if not missing:
                return
            assert time.monotonic() < deadline, f"not printed: {missing}, but {seen!r}"
            time.sleep(0.05)

    def end(self) -> None:
        for process, _ in self.beside:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=HANGS_S)


def pattern_of(line: str) -> re.Pattern[str]:
    """A line of a page, in which `…` stands for anything; spaces between columns do not count."""
    words = re.split(r"(…|\s+)", line.strip())
    parts = {"…": ".*?"}
    return re.compile("".join(parts.get(w, r"\s+" if w.isspace() else re.escape(w)) for w in words))


@pytest.fixture
def page_run(tmp_path: Path) -> Iterator[PageRun]:
    require_curl()
    with serving() as address:
        run = PageRun(address, tmp_path)
        try:
            yield run
        finally:
            run.end()


def as_parameter(page: str) -> object:
    return pytest.param(page, marks=pytest.mark.spark) if page == SPARK else page


@pytest.mark.slow
@pytest.mark.parametrize("page", [as_parameter(page) for page in PAGES if blocks(page)])
def test_the_blocks_of_a_page_run(page: str, page_run: PageRun) -> None:
    if page == SPARK:
        require_java()
    for block in blocks(page):
        if block.reason is None:
            page_run.run(block)


def test_blocks_that_are_not_run_say_why() -> None:
    reasons = [block.reason for page in PAGES for block in blocks(page) if block.reason is not None]
    assert [reason for reason in reasons if len(reason.split()) < 3] == []
    assert len(reasons) == NOT_RUN


def test_every_fence_is_a_block() -> None:
    """None is missed because it is indented, or has no language."""
    for page in PAGES:
        text = (DOCS / page).read_text("utf-8")
        fences = re.findall(r"^ *(?:```|~~~)([^\n]*)$", text, re.MULTILINE)
        named = [fence for fence in fences if fence and not fence.startswith("{")]
        assert len(named) == len(blocks(page)), page
        directives = sum(fence.startswith("{") for fence in fences)
        assert len(fences) == 2 * (len(named) + directives), page


@pytest.mark.slow
def test_a_wrong_block_fails(page_run: PageRun) -> None:
    page_run.run(Block("x.md", "sh", "echo one two", ""))
    page_run.run(Block("x.md", "text", "one  …wo", ""))
    for language, text in [("sh", "false"), ("python", "1/0"), ("json", "{"), ("toml", "a ="),
                           ("story", "publish a1; gets a1"), ("options", "oof\n=> nothing"),
                           ("ruby", "1")]:  # fmt: skip
        with pytest.raises((AssertionError, ValueError)):
            page_run.run(Block("x.md", language, text, ""))
