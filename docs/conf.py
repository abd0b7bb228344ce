"""The documentation as a site: `python3 dev.py site` builds these pages into build/site.

Sphinx with MyST and furo: its configuration is Python, so the reference comes from the code in the
same build. Zensical 0.0.73 found the same wrong links in half the time, but has no hook for that.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pygments.lexers.special import TextLexer

import tidegate

sys.path.insert(0, str(Path(__file__).parent))  # Sphinx runs this file from elsewhere

from reference import filled

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
OUT = HERE.parent / "build" / "site"
SUMMARY = (
    "Tidegate sends each subscriber the newest value of each key, at the interval it asked for."
)

project = "Tidegate"
project_copyright = "the authors of Tidegate, Apache-2.0"
version = release = tidegate.__version__
extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["_static"]
nitpicky = True
suppress_warnings = ["myst.header"]  # a rule of semantics is a heading of the third level

myst_heading_anchors = 4  # a link to a heading is the one that GitHub makes
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]

html_theme = "furo"
html_title = "Tidegate"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("conflation.js", {"type": "module"})]
html_copy_source = False
html_show_sphinx = False
pygments_style = "tango"
pygments_dark_style = "monokai"

# Languages of our own, and requests in one line, are text to Pygments.
PLAIN = ("filter", "http", "options", "story")
# Files beside docs/ have a page of the site that includes them.
OUTSIDE = {
    "SECURITY.md": "security-policy.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
}


def at_home(page: str, name: str = "index") -> str:
    """Return a page whose links to files beside docs/ lead to their pages of the site.

    A link to any other file of the repository, which the site does not have, becomes its path.

    Args:
        page: the text.
        name: of the page, from whose folder its links lead on.
    """
    folder = (HERE / name).parent

    def link(found: re.Match[str]) -> str:
        file = Path(os.path.normpath(folder / found[2]))
        if file.is_relative_to(HERE):
            return found[0]
        path = file.relative_to(HERE.parent)
        inside = OUTSIDE.get(str(path))
        if inside is None:
            return f"{found[1]} (`{path}`)"
        return f"[{found[1]}]({os.path.relpath(HERE / inside, folder)}{found[3]})"

    return re.sub(r"\[([^\]]+)\]\((\.\./[\w./-]+)((?:#[\w-]+)?)\)", link, page)


def write_llms(app: Sphinx, failure: Exception | None) -> None:
    """Write llms.txt, a list of all pages with their first paragraph, and their texts beside it."""
    if failure is not None or app.builder.name != "html":
        return
    lines = ["# Tidegate", "", f"> {SUMMARY}", ""]
    whole = []
    for name in ordered(app):
        text = filled(at_home(with_files(HERE / f"{name}.md"), name))
        (app.outdir / f"{name}.md").write_text(text, "utf-8")
        lines.append(f"- [{title_of(text)}]({name}.md): {first_paragraph(text)}")
        whole.append(text)
    (app.outdir / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (app.outdir / "llms-full.txt").write_text("\n\n".join(whole), "utf-8")


def with_files(page: Path) -> str:
    """Return a page with the files that it includes, and without its pictures."""

    def read(found: re.Match[str]) -> str:
        if found[1] == "image":
            return ""
        text = (page.parent / found[2]).read_text("utf-8").replace("](docs/", "](")
        options = dict(re.findall(r':([\w-]+): "?(.*?)"?$', found[3], re.MULTILINE))
        if found[1] == "literalinclude":
            return f"```{options.get('language', '')}\n{text}```"
        text = (
            text.partition(options.get("start-after", ""))[2] if "start-after" in options else text
        )
        return text.partition(options["end-before"])[0] if "end-before" in options else text

    fence = r"^```\{(image|include|literalinclude)\} (\S+)\n(.*?)```$"
    return re.sub(fence, read, page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def ordered(app: Sphinx) -> list[str]:
    """Return the names of all pages, in the order of the navigation."""
    found: list[str] = []

    def visit(name: str) -> None:
        if name not in found:
            found.append(name)
            for below in app.env.toctree_includes.get(name, ()):
                visit(below)

    visit(app.config.root_doc)
    return found


def title_of(page: str) -> str:
    """Return the text of a page's first heading."""
    found = re.search(r"^# (.+)$", page, re.MULTILINE)
    return found[1] if found else ""


def first_paragraph(page: str) -> str:
    """Return the first paragraph of prose below the title, in one line."""
    for paragraph in page.split("\n\n"):
        text = " ".join(paragraph.split())
        if text[:1].isalnum() or text.startswith("`"):
            return text
    return ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what the pages need."""
    for name in PLAIN:
        app.add_lexer(name, TextLexer)

    def read(_: Sphinx, name: str, source: list[str]) -> None:
        source[0] = filled(at_home(source[0], name))

    app.connect("source-read", read)
    app.connect("build-finished", write_llms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def main(arguments: list[str]) -> int:
    """Build the site, and fail on any warning: a wrong link or anchor is one."""
    from sphinx.cmd.build import build_main

    folder = arguments[0] if arguments else str(OUT)
    code = build_main(["-q", "-W", "--keep-going", "-b", "html", str(HERE), folder])
    if code == 0:
        sys.stdout.write(f"The site is at {folder}/index.html\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
