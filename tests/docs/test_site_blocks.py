"""Every block of code in the README and on the pages is run by a test.

The pages of the site's own (`PAGES`) run from top to bottom, each against a gateway of its own. A
comment before a block says what is unusual about it:

- `<!-- background -->`: it does not end by itself; it runs beside the following blocks,
- `<!-- serves -->`: it starts the gateway of the page, in a checkout,
- `<!-- run by: FILE -->`: this test runs it, beside what it needs,
- `<!-- elsewhere -->`: it is for another product, and only its syntax is checked.

What blocks have printed is what the next block in the language `text` shows; `…` is anything.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from ruamel.yaml import YAML

from dev import ROOT
from tests.browser.chromium import launched
from tests.docs.site import DOCS, Block, blocks
from tests.docs.stories import play
from tests.docs.test_options_page import answer_to, example_of
from tests.js.node import running_node
from tests.support.checkouts import BIN, copy_checkout, lend_environment
from tests.support.commands import environment, serving
from tests.support.deadlines import HANGS_S
from tests.support.external.kafka import broker_jars, kafka_broker
from tests.support.external.postgres import postgres_server
from tests.support.outside import require, require_curl, require_java
from tests.support.ports import lasting_port

POSTGRESQL = Path("/usr/lib/postgresql")
FOLDERS = ("coming-from", "tutorials")
PAGES = [str(it.relative_to(DOCS)) for name in FOLDERS for it in sorted((DOCS / name).glob("*.md"))]
PAGES += ["../README.md", "concepts.md", "embedding.md", "faq.md", "forward.md", "index.md"]
PAGES += ["ingest.md", "quick-start.md"]
SPARK = "tutorials/spark.md"
IN_PAGE = """async () => {
    %s
    return await new Promise((show, fail) => (async () => { %s\n%s })().catch(fail));
}"""
IMPORT = "const { connect } = await import('http://localhost:%d/client.js');"
PIP_LOOKS = {"PIP_DRY_RUN": "1", "PIP_NO_BUILD_ISOLATION": "0"}
"""pip looks for all that a block installs, and leaves the tests' own environment as it is.

It builds with what is there, which is what 0 says: a dry run would leave another place empty.
"""
GATEWAY_PORT = "8080"
USUAL_PORTS = (GATEWAY_PORT, "8001", "5173", "1883", "5432", "9092")
_USUAL_PORT = re.compile(rf"\b(?:{'|'.join(USUAL_PORTS)})\b")
DISPLAYS = {
    "tutorials/kafka.md": ("#wall article", "", 2),
    "tutorials/mqtt.md": ("#rows tr", "topic=sensors&", 1),
    "tutorials/postgresql.md": ("#rows tr", "topic=orders&", 1),
}
"""Pages whose own page shows so many elements at the end, and what its address asks for."""


class PageRun:
    """A page while its blocks run, in a checkout of its own."""

    def __init__(self, address: str, folder: Path, server_ports: Mapping[str, str]) -> None:
        self.address = address
        self.folder = folder
        self.ports = {each: str(lasting_port()) for each in USUAL_PORTS} | dict(server_ports)
        self.beside: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.printed: Path | None = None
        self.variables = PIP_LOOKS
        copy_checkout(folder)

    def serve(self, block: Block) -> None:
        """Start the page's gateway, as its reader does."""
        self.address = f"http://127.0.0.1:{lasting_port()}"
        if "dev.py setup" in block.text:  # the tests' own run begins with the set-up of a clone
            lend_environment(self.folder)
        else:
            self.variables = {}
        self.command(["bash", "-eo", "pipefail", "-c", block.text], block)
        self.shows(f"Tidegate listens on {self.address}")

    def run(self, block: Block) -> None:
        gateway_port = str(urlsplit(self.address).port)
        text = with_ports(block.text, {**self.ports, GATEWAY_PORT: gateway_port})
        text = re.sub(r"(\$PWD/)?\.venv/bin", str(BIN), text)
        match block.mark if block.mark in {"serves", "elsewhere"} else block.language:
            case "elsewhere":
                check_syntax(block)
            case "sh":
                self.command(["bash", "-eo", "pipefail", "-c", text], block)
            case "serves":
                self.serve(block)
            case "python":
                self.command([sys.executable, "-P", "-W", "error", "-c", text], block)
            case "js" if any(word in text for word in ("EventSource", "credentials", 'fetch("/')):
                is_foreign = "5173" in block.text or 'fetch("/' in text
                self.in_page(text, self.own_origin if is_foreign else self.address)
            case "js":
                with running_node() as node:
                    code = re.sub(r"^ *import .*$", "", text, flags=re.MULTILINE)
                    node.run("const console = {log: () => {}};" + code)
            case "text":
                self.shows(text)
            case "toml":
                tomllib.loads(text)
                if named := re.match(r"# (\w+\.toml)$", text, re.MULTILINE):
                    (self.folder / named[1]).write_text(text)
            case _:
                read(block.language, text)

    @property
    def own_origin(self) -> str:
        """The origin of the reader's own page."""
        return f"http://localhost:{self.ports['5173']}"

    def displays(self, elements: str, asked: str, count: int) -> None:
        """Open the reader's own page until it is live and shows so many elements."""
        with launched() as browser:
            page = browser.new_page()
            page.goto(f"{self.own_origin}/?{asked}gateway={self.address}")
            expect(page.locator("#state")).to_have_text("live")
            expect(page.locator(elements)).to_have_count(count)

    def in_page(self, text: str, origin: str) -> None:
        """Run a fragment of a page of this origin, until it has shown something, if it shows."""
        client = "" if "connect(" not in text else IMPORT % urlsplit(self.address).port
        with launched() as browser:
            page = browser.new_page()
            page.goto(origin)
            end = "" if "show(" in text else "show(true);"
            assert page.evaluate(IN_PAGE % (client, text, end))

    def command(self, command: list[str], block: Block) -> None:
        output = self.folder / f".output-{time.monotonic_ns()}"
        with output.open("wb") as stdout:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                stdout=stdout, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.printed = output
        if block.mark in {"background", "serves"}:
            self.beside.append((process, output))
        else:
            code = process.wait(timeout=HANGS_S)
            assert code == 0, f"{block.page}: {block.text}\n{output.read_text()}"

    def environment(self) -> dict[str, str]:
        """That of a reader who has another port."""
        # Debian keeps the programs of PostgreSQL, psql among them, where no PATH leads.
        folders = [str(BIN), os.environ["PATH"], *map(str, POSTGRESQL.glob("*/bin"))]
        path = os.pathsep.join(folders)
        port = str(urlsplit(self.address).port)
        ours = {"PATH": path, "TIDEGATE_GATEWAY": self.address, "TIDEGATE_PORT": port}
        return {**environment(), **ours, **self.variables}

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

    def failed(self) -> list[str]:
        """Return the output of each command beside the blocks that has ended with an error."""
        return [printed.read_text() for process, printed in self.beside if process.poll()]


def check_syntax(block: Block) -> None:
    """Compile a block of Python or JavaScript, without running it."""
    if block.language == "python":
        compile(block.text, block.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return
    assert block.language == "js"
    with running_node() as node:
        node.run(f"new (async () => {{}}).constructor({json.dumps(block.text)});")


def read(language: str, text: str) -> None:
    """Read a block which no command takes."""
    match language:
        case "json":
            json.loads(text)
        case "yaml":
            YAML(typ="safe").load(text)
        case "story":
            play(text)
        case "options":
            example = example_of(text)
            assert answer_to(example) == example.answer
        case _:
            raise AssertionError(f"nothing runs a block of {language}")


def with_ports(text: str, ports: Mapping[str, str]) -> str:
    """Return a block that reaches the gateway and other servers at these ports, by usual port."""
    # In one pass: a port that was put in may hold the digits of another.
    return _USUAL_PORT.sub(lambda found: ports[found[0]], text)


@contextlib.contextmanager
def servers_of(page: str, folder: Path) -> Iterator[dict[str, str]]:
    """Run the servers that a page takes for granted; yield their ports by the usual ones."""
    match page:
        case "tutorials/kafka.md":
            require_java()
            jars = broker_jars()
            require(jars is not None, "no packages of Kafka")
            with kafka_broker(jars or [], folder) as broker:
                yield {"9092": str(broker.port)}
        case "tutorials/postgresql.md":
            with postgres_server() as server:
                yield {"5432": str(server.port)}
        case _:
            yield {}


def pattern_of(line: str) -> re.Pattern[str]:
    """A line of a page, in which `…` stands for anything; spaces between columns do not count."""
    words = re.split(r"(…|\s+)", line.strip())
    parts = {"…": ".*?"}
    return re.compile("".join(parts.get(w, r"\s+" if w.isspace() else re.escape(w)) for w in words))


@contextlib.contextmanager
def page_run(page: list[Block], folder: Path, servers: Path) -> Iterator[PageRun]:
    require_curl()
    with contextlib.ExitStack() as stack:
        has_own = any(block.mark == "serves" for block in page)
        ports = stack.enter_context(servers_of(page[0].page, servers))
        run = PageRun("" if has_own else stack.enter_context(serving()), folder, ports)
        stack.callback(run.end)
        yield run
        assert run.failed() == []


def as_parameter(page: str) -> object:
    return pytest.param(page, marks=pytest.mark.spark) if page == SPARK else page


@pytest.mark.nightly
@pytest.mark.parametrize("page", [as_parameter(page) for page in PAGES if blocks(page)])
def test_the_blocks_of_a_page_run(
    page: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if page == SPARK:
        require_java()
    each = blocks(page)
    with page_run(each, tmp_path, tmp_path_factory.mktemp("servers")) as run:
        for block in each:
            if block.test is None:
                run.run(block)
        if page in DISPLAYS:
            run.displays(*DISPLAYS[page])


def test_blocks_that_another_test_runs_are_read_there() -> None:
    named = {block.test for page in PAGES for block in blocks(page) if block.test is not None}
    assert len(named) == 10
    assert [
        name for name in named if "block_run_by(__file__)" not in (ROOT / name).read_text()
    ] == []


def test_every_fence_is_a_block() -> None:
    """None is missed because it is indented, or has no language."""
    for page in PAGES:
        text = (DOCS / page).read_text("utf-8")
        fences = re.findall(r"^ *(?:```|~~~)([^\n]*)$", text, re.MULTILINE)
        named = [fence for fence in fences if fence and not fence.startswith("{")]
        assert len(named) == len(blocks(page)), page
        directives = sum(fence.startswith("{") for fence in fences)
        assert len(fences) == 2 * (len(named) + directives), page
