"""The examples of docs/semantics are true: stories, filters and options."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.docs.filter_examples import Example as FilterExample
from tests.docs.filter_examples import answer, example_of, examples
from tests.docs.rules import rules
from tests.docs.stories import play
from tests.docs.test_options_page import Example as OptionsExample
from tests.docs.test_options_page import answer_to
from tests.docs.test_options_page import examples as options_examples
from tests.support.commands import parsed

STORIES = [
    pytest.param(story, id=f"{rule.id}, story {number}")
    for rule in rules()
    for number, story in enumerate(re.findall(r"```story\n(.*?)```", rule.body, re.DOTALL), 1)
]
FILTERS = [(rule.id, example) for rule in rules() for example in examples(rule.body)]
OPTIONS = [(rule.id, example) for rule in rules() for example in options_examples(rule.body)]


@pytest.mark.parametrize("story", STORIES)
def test_a_story(story: str) -> None:
    play(story)


@pytest.mark.parametrize(("rule", "example"), FILTERS, ids=str)
def test_a_filter(rule: str, example: FilterExample) -> None:
    assert answer(example) == example.value, rule


@pytest.mark.parametrize(("rule", "example"), OPTIONS, ids=str)
def test_options(rule: str, example: OptionsExample) -> None:
    assert answer_to(example) == example.answer, rule


COMMANDS = [
    pytest.param(command, id=f"{rule.id}: {command}")
    for rule in rules()
    for command in re.findall(r"^tidegate (.*)$", rule.body, re.MULTILINE)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_taken(command: str) -> None:
    assert parsed(*shlex.split(command)).command.callback


def test_a_page_has_examples_of_each_kind() -> None:
    assert STORIES
    assert FILTERS
    assert OPTIONS
    assert COMMANDS


@pytest.mark.parametrize(
    "lie",
    [
        "subscribe conflation=1s; publish a1 a2; wait 1s; gets a1 a2",
        "subscribe; publish a1; gets nothing",
        "subscribe; publish a1; gets a1 @2",
        "subscribe conflation=1s,receipt; publish a1 a2; wait 1s; gets a2*1",
        "frobnicate a1",
        "topic colour=blue",
    ],
)
def test_a_false_story_fails(lie: str) -> None:
    with pytest.raises(AssertionError):
        play(lie)


def test_a_false_filter_fails() -> None:
    lie = example_of("/a = 2  =>  TRUE  on {}")
    assert answer(lie) == "NULL"
