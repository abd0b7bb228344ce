"""A command's output and its exit: lines, progress, errors and exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from tidegate.clients.errors import GatewayProblem

PROGRAM = "tidegate"
COMPLETION_VARIABLE = "_TIDEGATE_COMPLETE"

DONE = 0
REFUSED = 1
USAGE = 2
UNREACHABLE = 3
CONFIGURATION = 78  # EX_CONFIG of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
TERMINATED = 143  # 128 + SIGTERM

# Characters shown around a fault: a line of a terminal, with more of what was already parsed.
BEFORE_MAX = 50
AFTER_MAX = 25


class CommandError(Exception):
    """A command cannot continue; `str()` is one line with the reason.

    Attributes:
        lines: shown beneath it on a terminal.
    """

    exit_code = REFUSED

    def __init__(self, sentence: str, lines: Sequence[str] = ()) -> None:
        super().__init__(sentence)
        self.lines = lines


class ServerAway(CommandError):
    """The gateway, or for a gateway its Redis, does not answer or has not come back."""

    exit_code = UNREACHABLE


class UsageInvalid(CommandError):
    """The arguments contradict each other or cannot be used."""

    exit_code = USAGE


class ConfigurationInvalid(CommandError):
    """The configuration or the machine does not allow the command."""

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
    """Return the text at fault and a caret under the position; empty if either is unknown."""
    text, position = _text_at_fault(problem, texts), problem.position
    if not text or position is None or position > len(text):
        return []
    start = max(0, position - BEFORE_MAX)
    shown = " ".join(text[start : position + AFTER_MAX].splitlines())
    return [f"  {shown}", "  " + " " * (position - start) + "^"]


def _text_at_fault(problem: GatewayProblem, texts: dict[str, str | None]) -> str | None:
    """Return the argument at fault: the problem's code names filters, its detail the others."""
    if problem.code == "filter-invalid":
        return texts.get("filter")
    if problem.code != "options-invalid":
        return None
    named = (name for name in texts if problem.detail.startswith(name))
    return texts.get(next(named, "options"))


def open_closed_streams() -> None:
    """Open /dev/null in place of closed standard streams.

    Python has None in place of a closed stream, and the system would give its number to the next
    file that is opened, such as a store. `sys.stdin` stays None: see `standard_input`.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def standard_input() -> BinaryIO:
    """Return the bytes of standard input.

    Raises:
        UsageInvalid: it is closed.
    """
    if sys.stdin is None:
        raise UsageInvalid("standard input is closed: name a file, or connect a pipe")
    return sys.stdin.buffer


def print_note(sentence: str) -> None:
    """Print one line for people on standard error; nothing depends on it."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{' '.join(sentence.split())}\n")
        sys.stderr.flush()


def print_error(reason: str) -> None:
    """Print one line on standard error that names the fault."""
    print_note(f"tidegate: {reason}")


def print_excerpt(lines: Sequence[str]) -> None:
    """Print lines that show the fault, on a terminal only; a log keeps to one line."""
    if sys.stderr.isatty():
        sys.stderr.writelines(f"{line}\n" for line in lines)
        sys.stderr.flush()


def print_line(line: str) -> None:
    """Print one line of output and flush it: a reader of the pipe may wait for it.

    Raises:
        CommandError: the output takes nothing more, such as a file on a full disk.
    """
    with writing_output():
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def announce(line: str) -> None:
    """Print one line of a service, which continues even if the output cannot be written."""
    try:
        print_line(line)
    except (BrokenPipeError, CommandError):
        silence_output()


@contextlib.contextmanager
def writing_output() -> Iterator[None]:
    """Turn a failed write to standard output into one readable line.

    Raises:
        CommandError: in place of an OSError; a BrokenPipeError stays what it is.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_output()
        raise CommandError(f"cannot write the output: {error.strerror or error}") from None


def silence_output() -> None:
    """Discard what is still buffered, because the output cannot be written."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def progress(doing: str, unit: str) -> Iterator[Callable[..., None]]:
    """Yield a function to call with each number done; on a terminal it shows the count and a bar.

    Its second argument is the share of the work that is done so far, where that is known.
    """
    if not sys.stderr.isatty():
        yield lambda done, share=None: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(doing),
        BarColumn(20),
        TaskProgressColumn(),
        TextColumn("{task.fields[count]:,} " + unit),
        TextColumn("{task.fields[rate]:,.0f} a second"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(doing, total=None, count=0, rate=0.0)
        count = 0

        def advance(done: int, share: float | None = None) -> None:
            nonlocal count
            count += done
            rate = count / max(shown.tasks[0].elapsed or 0.0, 1e-3)
            shown.update(task, total=share and 1.0, completed=share or 0.0, count=count, rate=rate)

        yield advance
