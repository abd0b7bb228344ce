"""docs/contract.md names everything that the outside may meet: codes, events, options."""

import re

import pytest

from dev import ROOT
from tidegate.app.cli.command import MODULES
from tidegate.app.cli.pipeline import pipeline
from tidegate.app.definitions.topic import FIELDS
from tidegate.app.delivery.encoding import Format, Op
from tidegate.app.delivery.notices import Cause
from tidegate.app.http.problems import PROBLEMS
from tidegate.app.routes.models.sessions import Subscribing
from tidegate.conflation.outputs import CloseReason, ResumeMode
from tidegate.conflation.subscription import Command
from tidegate.conflation.tracing.decisions import DecisionKind

PAGE = (ROOT / "docs" / "contract.md").read_text("utf-8")
WRITERS = ("delivery/encoding", "delivery/notices", "http/wire", "sessions/stream", "routes/trace")
SSE = "".join((ROOT / "app" / f"{name}.py").read_text("utf-8") for name in WRITERS)


def quoted(word: str) -> bool:
    """Whether the page has the word as code, alone or inside a longer piece of code."""
    return any(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", code) for code in CODE)


CODE = re.findall(r"`([^`\n]+)`", PAGE)


@pytest.mark.parametrize("code", PROBLEMS)
def test_problem_codes_stand_with_their_status(code: str) -> None:
    assert f"| `{code}` | {PROBLEMS[code][0]} |" in PAGE


@pytest.mark.parametrize("name", sorted(set(re.findall(r'event\(\s*"(\w+)"', SSE))))
def test_events_stand_on_the_page(name: str) -> None:
    assert quoted(name)


def test_there_are_events_to_look_for() -> None:
    assert len(re.findall(r'event\(\s*"(\w+)"', SSE)) >= 10


@pytest.mark.parametrize(
    "word",
    sorted(
        {
            *Subscribing.codes,
            *Format,
            *Command,
            *CloseReason,
            *ResumeMode,
            *FIELDS,
            *Cause,
            *Op,
            *DecisionKind,
        }
    ),
)
def test_words_of_requests_and_answers_stand_on_the_page(word: str) -> None:
    assert quoted(str(word))


@pytest.mark.parametrize("verb", [*MODULES, *(f"pipeline {verb}" for verb in pipeline.commands)])
def test_commands_stand_on_the_page(verb: str) -> None:
    assert re.search(rf"`tidegate {verb}\b", PAGE)


def test_metrics_have_their_page() -> None:
    assert "[metrics.md](metrics.md)" in PAGE


def test_a_word_that_is_not_there_is_missed() -> None:
    assert not quoted("no-such-code")
