"""The generated part of docs/options.md: the table of options, and what they are refused with.

`python -m tests.docs.options_reference` writes it into the page, from `conflation.options`.
"""

from __future__ import annotations

from dev import ROOT
from tidegate.conflation.options.print import reference

PAGE = ROOT / "docs" / "options.md"
BEGIN = "<!-- `python -m tests.docs.options_reference` writes from here -->"
END = "<!-- to here -->"


def generated(page: str) -> str:
    """The page with the part between the markers written anew."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, "the page has lost its first marker"
    assert end, "the page has lost its second marker"
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text("utf-8")), "utf-8")
