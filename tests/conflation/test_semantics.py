"""docs/semantics.md and the tests speak of the same rules."""

from __future__ import annotations

import re

from dev import ROOT
from tests.architecture.rules import modules

RULES = set(
    re.findall(r"^(\d+)\. ", (ROOT / "docs" / "semantics.md").read_text("utf-8"), re.MULTILINE)
)


def cited() -> dict[str, list[str]]:
    """The rules that test modules cite, in words such as `Rule 1` or `Rules 1, 2 and 3`."""
    found: dict[str, list[str]] = {}
    for path in modules(
        "tests/keys", "tests/conflation", "tests/app", "tests/pipeline", "tests/support"
    ):
        for numbers in re.findall(r"[Rr]ules? ((?:\d+(?:, | and )?)+)", path.read_text("utf-8")):
            for number in re.findall(r"\d+", numbers):
                found.setdefault(number, []).append(path.name)
    return found


def test_every_rule_is_cited_by_a_test() -> None:
    assert sorted(RULES - set(cited()), key=int) == []


def test_every_rule_that_is_cited_exists() -> None:
    assert {number: files for number, files in cited().items() if number not in RULES} == {}
