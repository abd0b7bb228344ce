"""Rules of options (option-3, view-1): what is in conflict, in which order, and what has to go."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.options.grant import conflicts
from tidegate.conflation.options.rules import Case, Rule
from tidegate.conflation.options.table import TABLE, Options
from tidegate.conflation.subscription import Auto, Command
from tidegate.keys.spec import KeySpec

pytestmark = rule("option-3", "view-1")


MS = 1_000_000


def names_of(text: str, command: Command = Command.SOW_AND_SUBSCRIBE) -> list[tuple[str, ...]]:
    definition = Definition(History(1), KeySpec.parse("[/k]"))
    case = Case(definition, Options.parse(text).said, command)
    return [conflict.names for conflict in conflicts(case)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("conflation=1s,oof,select=[-/a]", []),
        ("pace=key,edge=leading", [("pace",), ("edge",)]),
        ("conflation=1s,edge=leading,pace=batch", [("edge", "pace")]),
        ("conflation=1s,conflation_key=[/x],oof", [("conflation_key", "oof")]),
        ("top_n=1,grouping=[/a],projection=[/a]", [("top_n", "projection")]),
        ("conflation=auto,min=2s,max=1s", [("min", "max"), ("max", "min")]),
        ("bookmark=epoch,oof", [("bookmark",), ("oof", "bookmark")]),
    ],
)
def test_everything_that_is_wrong_is_found(text: str, names: list[tuple[str, ...]]) -> None:
    assert names_of(text) == names


def test_pause_and_resume_are_opposites() -> None:
    definition = Definition(History(1))
    options = Options.parse("pause,resume", is_change=True)
    found = conflicts(Case(definition, options.said, Command.SUBSCRIBE, is_change=True))
    assert [conflict.names for conflict in found] == [("pause",)]


@rule("option-6")
@pytest.mark.parametrize(
    ("text", "auto"),
    [
        ("", Auto(50 * MS, 30_000 * MS)),
        ("min=60ms,max=25s", Auto(100 * MS, 10_000 * MS)),
        ("max_age=700ms", Auto(50 * MS, 500 * MS)),
        ("max=2s,max_age=700ms", Auto(50 * MS, 2_000 * MS)),
        ("min=60ms,max=90ms", None),
    ],
)
def test_the_bounds_of_auto(text: str, auto: Auto | None) -> None:
    """A promised age is the upper bound where none is given."""
    definition = Definition(History(1))
    assert Case(definition, Options.parse(text).said, Command.SUBSCRIBE).auto == auto


def test_every_rule_is_kept_by_some_option() -> None:
    assert {rule for option in TABLE.values() for rule in option.rules} == set(Rule)
