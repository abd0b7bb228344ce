"""docs/contract.md names everything that the outside may meet: codes, events, options."""

import re

from pydantic import TypeAdapter

from dev import ROOT
from tidegate.app.cli.command import MODULES
from tidegate.app.cli.pipeline import pipeline
from tidegate.app.definitions.topic import FIELDS
from tidegate.app.http.routes.models.events import EVENTS, TRACE_EVENTS, UnsubscribedEvent
from tidegate.app.http.routes.models.sessions import Subscribing
from tidegate.app.refusals import CODES
from tidegate.app.streams.encoding import Format, Op
from tidegate.app.streams.notices import Cause
from tidegate.conflation.outputs import CloseReason, ResumeMode
from tidegate.conflation.subscription import Command
from tidegate.conflation.tracing.decisions import DecisionKind

PAGE = (ROOT / "docs" / "contract.md").read_text("utf-8")
MODULES_OF_APP = [path.read_text("utf-8") for path in sorted((ROOT / "app").rglob("*.py"))]
# The log has an `event` too: only those that import the one of streams write events.
IMPORTED = re.compile(r"streams\.sse import .*\bevent\b")
SSE = "".join(text for text in MODULES_OF_APP if IMPORTED.search(text))
WRITTEN = set(re.findall(r'\bevent\(\s*"(\w+)"', SSE))


def quoted(word: str) -> bool:
    """Whether the page has the word as code, alone or inside a longer piece of code."""
    return any(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", code) for code in CODE)


CODE = re.findall(r"`([^`\n]+)`", PAGE)


def test_problem_codes_stand_with_their_status() -> None:
    rows = {code: f"| `{code}` | {problem[0]} |" for code, problem in CODES.items()}
    assert [code for code, row in rows.items() if row not in PAGE] == []


def test_events_stand_on_the_page() -> None:
    assert len(WRITTEN) >= 10
    assert [name for name in {*WRITTEN, *EVENTS, *TRACE_EVENTS} if not quoted(name)] == []


def test_words_of_requests_and_answers_stand_on_the_page() -> None:
    words = {
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
    assert [word for word in sorted(words) if not quoted(str(word))] == []
    assert not quoted("no-such-code")


def test_reasons_why_a_subscription_ends_are_those_of_the_schema() -> None:
    [reasons] = re.findall(r'^\| `unsubscribed` \|.*"reason": "([A-Z_ ]+)"', PAGE, re.MULTILINE)
    schema = TypeAdapter(UnsubscribedEvent).json_schema()
    assert reasons.split() == schema["properties"]["reason"]["enum"]


def test_commands_stand_on_the_page() -> None:
    verbs = [*MODULES, *(f"pipeline {verb}" for verb in pipeline.commands if verb not in MODULES)]
    assert [verb for verb in verbs if not re.search(rf"`tidegate {verb}\b", PAGE)] == []


def test_metrics_have_their_page() -> None:
    assert "[metrics.md](metrics.md)" in PAGE
