"""docs/semantics, the tests and the product name the same rules."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.rules import (
    NIGHTLY,
    PAGES,
    marked,
    marked_tests,
    named,
    numbered_in,
    rules,
    texts,
)

CLAIM_WORDS_MAX = 40
LINE_CHARACTERS_MAX = 120

IDS = [rule.id for rule in rules()]


def test_every_rule_has_a_test_that_runs_by_default() -> None:
    by_default = {
        id_
        for id_, tests in marked_tests().items()
        if any(not test.endswith(NIGHTLY) for test in tests)
    }
    assert sorted(set(IDS) - by_default) == []


def test_every_mark_names_a_rule() -> None:
    found = {id_: tests for id_, tests in marked_tests().items() if id_ not in IDS}
    assert found == {}


def test_every_text_names_rules_that_exist() -> None:
    found = {path: ids - set(IDS) for path, ids in named().items() if ids - set(IDS)}
    assert found == {}


def test_no_text_names_a_rule_by_number() -> None:
    assert {path: found for path, text in texts().items() if (found := numbered_in(text))} == {}


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_ids_count_from_one_under_one_name(page: object) -> None:
    ids = [rule.id for rule in rules() if rule.page == page]
    names = {id_.split("-")[0] for id_ in ids}
    assert len(names) <= 1
    assert ids == [f"{name}-{number}" for name in names for number in range(1, len(ids) + 1)]


def test_each_rule_is_one_claim_with_an_example() -> None:
    assert len(IDS) == len(set(IDS))
    assert [rule.id for rule in rules() if len(rule.claim.split()) > CLAIM_WORDS_MAX] == []
    shown = re.compile(r"^(```\w|\|---)", re.MULTILINE)
    assert [rule.id for rule in rules() if not shown.search(rule.body)] == []


def test_lines_are_short() -> None:
    lines = [
        f"{page.name}:{number}"
        for page in sorted(PAGES.glob("*.md"))
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1)
        if len(line) > LINE_CHARACTERS_MAX
    ]
    assert lines == []


def test_the_index_links_every_page() -> None:
    index = (PAGES / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\((\w+\.md)\)", index))
    assert linked == {page.name for page in PAGES.glob("*.md")} - {"README.md"}


def test_marks_of_tests_classes_and_modules_are_read() -> None:
    module = ast.parse(
        "pytestmark = [pytest.mark.system, rule('a-1')]\n"
        "@rule('a-2', 'a-3')\ndef test_x(): pass\n"
        "@rule('a-4')\nclass TestY: pass\n"
        "rule('a-5')\n"
    )
    assert set(marked(module)) == {
        *(("a-1", "*"), ("a-2", "test_x"), ("a-3", "test_x"), ("a-4", "TestY")),
    }
