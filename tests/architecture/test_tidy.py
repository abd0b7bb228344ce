"""The product keeps the rules of `tests.architecture.rules`."""

from __future__ import annotations

import pytest

from dev import ROOT
from tests.architecture import rules
from tests.architecture.rules import PACKAGES, PURE, findings, modules


@pytest.mark.nightly  # it parses the whole product
def test_no_name_is_empty_of_meaning() -> None:
    assert findings(rules.banned_names, [ROOT / "dev.py", *modules(*PACKAGES)]) == []


def test_no_module_is_named_for_nothing() -> None:
    assert [path for path in modules(*PACKAGES) if rules.banned_module_name(path.stem)] == []


def test_pure_packages_import_only_what_has_no_effect() -> None:
    assert findings(rules.impure_imports, modules(*PURE)) == []


def test_pure_packages_do_no_input_or_output() -> None:
    assert findings(rules.impure_syntax, modules(*PURE)) == []


@pytest.mark.parametrize(
    "name",
    ["pyproject.toml", "README.md", "docker-compose.yml", "app", "conflation", "keys", "tests"],
)
def test_the_top_level_has_the_given_names(name: str) -> None:
    assert (ROOT / name).exists()
