"""How a command ends: its exit codes, the errors that carry one, and where a refusal points to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.clients.errors import GatewayProblem

DONE = 0
REFUSED = 1
USAGE = 2
UNREACHABLE = 3
CONFIGURATION = 78
INTERRUPTED = 130

BEFORE_MAX = 50
AFTER_MAX = 25


class CommandError(Exception):
    """A command cannot go on; `str()` is the one line that says why.

    Attributes:
        lines: shown beneath it on a terminal.
    """

    exit_code = REFUSED

    def __init__(self, sentence: str, lines: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.lines = lines


class GatewayAway(CommandError):
    """The gateway was lost on the way, and is not back."""

    exit_code = UNREACHABLE


class UsageInvalid(CommandError):
    """The command was asked for something that makes no sense."""

    exit_code = USAGE


class ConfigurationInvalid(CommandError):
    """The configuration, or the machine, does not allow it."""

    exit_code = CONFIGURATION


@contextlib.contextmanager
def pointing(**texts: str | None) -> Iterator[None]:
    """Let a refusal point into `texts`, the arguments `filter`, `options`, `order_by`, `select`.

    Raises:
        CommandError: in place of a GatewayProblem.
    """
    from tidegate.clients.errors import GatewayProblem

    try:
        yield
    except GatewayProblem as problem:
        raise CommandError(str(problem), caret_under(problem, texts)) from problem


def caret_under(problem: GatewayProblem, texts: dict[str, str | None]) -> list[str]:
    """The text at fault and a caret under its position; nothing where neither is known."""
    text, position = _text_at_fault(problem, texts), problem.position
    if not text or position is None or position > len(text):
        return []
    start = max(0, position - BEFORE_MAX)
    shown = " ".join(text[start : position + AFTER_MAX].splitlines())
    return [f"  {shown}", "  " + " " * (position - start) + "^"]


def _text_at_fault(problem: GatewayProblem, texts: dict[str, str | None]) -> str | None:
    """The argument by the problem's code; others than options are named in its detail."""
    if problem.code == "filter-invalid":
        return texts.get("filter")
    if problem.code != "options-invalid":
        return None
    named = (name for name in texts if problem.detail.startswith(name))
    return texts.get(next(named, "options"))
