"""The site as its readers have it: pages, what they link to, and the blocks of code in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dev import ROOT
from tests.support.commands import environment
from tests.support.deadlines import HANGS_S

DOCS = ROOT / "docs"
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


def build(docs: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build these pages into a folder, as `dev.py site` does."""
    return subprocess.run(
        [sys.executable, str(docs / "conf.py"), str(folder)],
        env=environment(), capture_output=True, text=True, timeout=HANGS_S,
    )  # fmt: skip


@dataclass
class Page(HTMLParser):
    """A page of HTML: its anchors, what it links to, and what it loads."""

    text: str
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if tag == "a" and name == "href" and value:
                self.links.append(value)
            if (tag, name) in LOADED and value:
                self.loads.append(value)


def faults(site: Path) -> Iterator[str]:
    """Yield each link that leads nowhere, and whatever a page loads from another host."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name} loads {each}" for each in page.loads if urlsplit(each).netloc)
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (
                Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            )
            if not target.exists():
                yield f"{name} has a link to {link}, and there is no such file"
            elif parts.fragment and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name} has a link to {link}, and there is no such anchor"


def unlinked(docs: Path, site: Path) -> Iterator[str]:
    """Yield each link of a page to another one that its HTML does not have."""
    for path in sorted(docs.rglob("*.md")):
        name = path.relative_to(docs).with_suffix(".html")
        # The navigation, which has every page, stands outside of the article.
        article = (site / name).read_text("utf-8").partition("<article")[2].partition("</article>")
        linked = {urlsplit(link).path for link in Page(article[0]).links}
        for link in _LINK.findall(_CODE.sub("", path.read_text("utf-8"))):
            target = Path(os.path.normpath(path.parent / link))
            page = Path(link).with_suffix(".html")
            if target.is_relative_to(docs) and str(page) not in linked:
                yield f"{name} has no link to {page}"


_CODE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$|(?<!`)(`+)[^`].*?\2", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the comment before it that says how it is run."""

    page: str
    language: str
    text: str
    mark: str

    @property
    def test(self) -> str | None:
        """The file of the test that runs it; None if its page's own test does."""
        word = "run by: "
        return self.mark.removeprefix(word) if self.mark.startswith(word) else None


_FENCE = re.compile(
    r"(?:<!-- (run by: [^>]+|background|serves|elsewhere) -->\n+)?^```(\w+)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(name: str) -> list[Block]:
    """Return the blocks of a page, by its path below docs/, in their order."""
    page = (DOCS / name).read_text("utf-8")
    return [Block(name, found[2], found[3], found[1] or "") for found in _FENCE.finditer(page)]


def block_run_by(test: str) -> Block:
    """Return the one block that says that this file runs it."""
    name = Path(test).relative_to(ROOT)
    pages = ["../README.md", *(str(it.relative_to(DOCS)) for it in sorted(DOCS.rglob("*.md")))]
    [found] = [it for page in pages for it in blocks(page) if it.test == str(name)]
    return found
