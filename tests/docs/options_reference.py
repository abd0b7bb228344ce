"""The generated part of docs/options.md: the table of options, and what they are refused with.

`python -m tests.docs.options_reference` writes it into the page, from `conflation.options`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dev import ROOT
from tidegate.conflation.options.rules import Rule
from tidegate.conflation.options.table import TABLE, Option

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


def reference() -> str:
    """Return the tables of the reference page, in Markdown: every option, and every rule."""
    return "\n".join((*_option_rows(), "", *_rule_rows()))


def _option_rows() -> Iterator[str]:
    yield "| option | value | default | meaning | as in |"
    yield "|---|---|---|---|---|"
    for name, option in TABLE.items():
        value = "flag" if option.syntax is None else option.syntax.form
        yield f"| `{name}` | {value} | {_usual(option)} | {option.meaning} | {option.source} |"


def _usual(option: Option[Any]) -> str:
    if option.usual:
        return option.usual
    if option.syntax is None:
        return "off"
    return "none" if option.default is None else f"`{option.syntax.text(option.default)}`"


def _rule_rows() -> Iterator[str]:
    """Yield a row for each sentence: two rules that differ only in exceptions share theirs."""
    names_of: dict[str, list[str]] = {}
    for rule in Rule:
        kept_by = (name for name, option in TABLE.items() if rule in option.rules)
        names_of.setdefault(rule.sentence, []).extend(kept_by)
    yield "| option | refused with |"
    yield "|---|---|"
    for sentence, names in names_of.items():
        shown = ", ".join(f"`{name}`" for name in names)
        yield f"| {shown} | {sentence.format(name='…' if len(names) > 1 else names[0])} |"


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text("utf-8")), "utf-8")
