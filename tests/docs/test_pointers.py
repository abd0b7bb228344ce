"""Pages point to files that exist: a map with a wrong path is worse than none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dev import ROOT

FOLDERS = (
    *("app", "bench", "clients", "conflation", "deploy", "docs", "examples", "keys", "pipeline"),
    *("pyspark_tidegate", "requirements", "tests"),
)
# Paths in code font: `app/http/`, `tests/app/stores`, and file names such as `writer.py`.
POINTER = re.compile(r"`(\w[\w./-]*)`")
IS_FILE = re.compile(r"[\w/-]+\.(py|md|yml|json)")
CODE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$|(?<!`)(`+)[^`].*?\2", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+\.(?:md|svg|png))(?:#[^)]*)?\)")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def pointers(page: str) -> Iterator[str]:
    """Yield what a page names as a file or a folder of the source."""
    for pointer in POINTER.findall(page):
        folder, slash, _ = pointer.partition("/")
        if IS_FILE.fullmatch(pointer) or (slash and folder in FOLDERS):
            yield pointer


def existing() -> set[str]:
    """Return every file and folder, and the ends of its path."""
    paths = [path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    paths += [Path(folder) for folder in FOLDERS] + [Path(file.name) for file in ROOT.glob("*.*")]
    return {"/".join(path.parts[start:]) for path in paths for start in range(len(path.parts))}


EXISTING = existing()


def test_files_and_folders_that_pages_name_exist() -> None:
    missing = {
        (str(page.relative_to(ROOT)), each)
        for page in PAGES
        for each in pointers(page.read_text("utf-8"))
        if each.rstrip("/") not in EXISTING
    }
    assert sorted(missing) == []


def test_pages_that_pages_link_to_exist() -> None:
    """The site's build, which is nightly, checks anchors too."""
    missing = {
        (str(page.relative_to(ROOT)), link)
        for page in PAGES
        for link in LINK.findall(CODE.sub("", page.read_text("utf-8")))
        if not (page.parent / link).exists()
    }
    assert sorted(missing) == []


def test_a_wrong_pointer_is_found() -> None:
    page = "`app/http/no.py`, `writer.py`, `app/http/`, `conflation/no/`, `/v1/topics`, `a/b`"
    named = set(pointers(page))
    assert named == {"app/http/no.py", "writer.py", "app/http/", "conflation/no/"}
    wrong = {pointer for pointer in named if pointer.rstrip("/") not in EXISTING}
    assert wrong == {"app/http/no.py", "conflation/no/"}
