"""What people see beside the output: lines on standard error, progress where it is a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence


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
