"""The site builds without a warning, and every link and anchor in it leads somewhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dev import ROOT
from tests.docs.site import DOCS, build, faults, unlinked
from tidegate.app.http.problems import PROBLEMS
from tidegate.app.main import create_app
from tidegate.app.settings.settings import Settings

pytestmark = pytest.mark.system


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


def test_a_link_that_became_text_is_found(tmp_path: Path) -> None:
    docs, site = tmp_path / "docs", tmp_path / "site"
    (docs / "below").mkdir(parents=True)
    (site / "below").mkdir(parents=True)
    (docs / "below" / "a.md").write_text("[b](../b.md#here), [d](../../d.md), `[c](c.md)`")
    (docs / "b.md").write_text("text")
    (site / "b.html").write_text("text")
    link = '<a href="../b.html#here">b</a>'
    (site / "below" / "a.html").write_text(f"<article>{link}</article>")
    assert list(unlinked(docs, site)) == []
    (site / "below" / "a.html").write_text(f"{link}<article>b (<code>../b.md</code>)</article>")
    assert list(unlinked(docs, site)) == ["below/a.html has no link to ../b.html"]


def test_the_reference_has_what_the_code_has(site: Path) -> None:
    routes = (site / "api.md").read_text("utf-8")
    for path, methods in create_app(Settings()).openapi()["paths"].items():
        assert [it for it in methods if f"### `{it.upper()} {path}`" not in routes] == []
    problems = (site / "problems.md").read_text("utf-8")
    assert [code for code in PROBLEMS if f"| `{code}` |" not in problems] == []


def test_llms_txt_has_each_page_in_a_line(site: Path) -> None:
    title, _, summary, _, *lines = (site / "llms.txt").read_text("utf-8").splitlines()
    assert title == "# Tidegate"
    assert summary.startswith("> ")
    assert [line for line in lines if not line.startswith("- [") or line.endswith("): ")] == []
    whole = (site / "llms-full.txt").read_text("utf-8")
    assert not re.search(r"\{\w*(include|image)\}", whole + "".join(lines))
    for part in ("# Changelog", "# Security policy", "await import(`${address}/client.js`)"):
        assert part in whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[one](other.md#no-such-heading)", "no-such-heading"),
        ("[one](no-such-page.md)", "no-such-page"),
        ("![a picture](no-such-picture.svg)", "no-such-picture"),
    ],
)
def test_a_wrong_link_fails_the_build(text: str, said: str, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "_static").mkdir(parents=True)
    for name in ("conf.py", "reference.py"):
        shutil.copy(ROOT / "docs" / name, docs)
    (docs / "other.md").write_text("# Other\n\nText.\n\n## A heading\n")
    page = "# Site\n\n[right](other.md#a-heading)\n\n```{toctree}\nother\n```\n"
    (docs / "index.md").write_text(page)
    assert build(docs, tmp_path / "right").returncode == 0
    (docs / "index.md").write_text(f"{page}\n{text}\n")
    ended = build(docs, tmp_path / "wrong")
    assert ended.returncode != 0
    assert said in ended.stderr


def test_a_fault_of_the_built_pages_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">x</a><a href="#here">x</a><p id="here">'
    )
    (tmp_path / "b.html").write_text('<p id="there">')
    assert list(faults(tmp_path)) == []
    (tmp_path / "b.html").write_text('<p id="other"><a href="c.html">x</a><script src="//h/x.js">')
    assert len(list(faults(tmp_path))) == 3
