"""The site builds without a warning, and every link and anchor in it leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.site import DOCS, build, faults, unlinked
from tidegate.app.http.application import create_app
from tidegate.app.refusals import CODES
from tidegate.app.settings.settings import Settings

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ended = build(DOCS, folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    return folder


def test_every_page_is_in_the_navigation(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    assert [str(page) for page in pages if not (site / f"{page}.html").exists()] == []
    listed = (site / "llms.txt").read_text("utf-8")
    assert [str(page) for page in pages if f"]({page}.md): " not in listed] == []


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    assert list(faults(site)) == []


def test_every_link_of_a_page_is_one_of_the_site(site: Path) -> None:
    assert list(unlinked(DOCS, site)) == []


def test_the_reference_has_what_the_code_has(site: Path) -> None:
    routes = (site / "api.md").read_text("utf-8")
    for path, methods in create_app(Settings()).openapi()["paths"].items():
        assert [it for it in methods if f"### `{it.upper()} {path}`" not in routes] == []
    problems = (site / "problems.md").read_text("utf-8")
    assert [code for code in CODES if f"| `{code}` |" not in problems] == []


def test_llms_txt_has_each_page_in_a_line(site: Path) -> None:
    title, _, summary, _, *lines = (site / "llms.txt").read_text("utf-8").splitlines()
    assert title == "# Tidegate"
    assert summary.startswith("> ")
    assert [line for line in lines if not line.startswith("- [") or line.endswith("): ")] == []
    whole = (site / "llms-full.txt").read_text("utf-8")
    assert not re.search(r"\{\w*(include|image)\}", whole + "".join(lines))
    for part in ("# Changelog", "# Security policy", "await import(`${address}/client.js`)"):
        assert part in whole
