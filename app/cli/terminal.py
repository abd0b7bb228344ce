"""How a command speaks and how it ends: output, complaints, progress, errors and exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.clients.errors import GatewayProblem

PROGRAM = "tidegate"
COMPLETION_VARIABLE = "_TIDEGATE_COMPLETE"

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


def say(sentence: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"{' '.join(sentence.split())}\n")
    sys.stderr.flush()


def complain(reason: str) -> None:
    """One line on standard error that says what went wrong."""
    say(f"tidegate: {reason}")


def point_at(lines: Sequence[str]) -> None:
    """Where it went wrong, as it stands, for who looks at a terminal; logs keep to one line."""
    if sys.stderr.isatty():
        sys.stderr.writelines(f"{line}\n" for line in lines)
        sys.stderr.flush()


def tell(line: str) -> None:
    """One line of output, at once, as others may wait for it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def silence_output() -> None:
    """Nobody reads the output any more: let what is still buffered go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def progress(doing: str, unit: str) -> Iterator[Callable[[int], None]]:
    """A function to call with each number done; shows a running count on a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn(doing),
        TextColumn("{task.completed:,.0f} " + unit),
        TextColumn("{task.fields[rate]:,.0f} a second"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(doing, total=None, rate=0.0)

        def advance(done: int) -> None:
            shown.update(task, advance=done, rate=shown.tasks[0].speed or 0.0)

        yield advance
