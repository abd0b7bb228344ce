"""The keys that a person presses while a live table is drawn."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator

LOOK_S = 0.1  # how long the end waits for the thread that listens
KEY = re.compile(rb"\x1b\[[A-D]|.", re.DOTALL)
ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left"}


@contextlib.contextmanager
def keys(press: Callable[[str], None], file: int | None = None) -> Iterator[None]:
    """Call `press` with each key, from a thread of its own; does nothing without a terminal.

    Keys are characters, and `up`, `down`, `left`, `right`. Ctrl-C stays an interrupt.
    """
    file = _input() if file is None else file
    if file is None or not os.isatty(file):
        yield
        return
    kept = termios.tcgetattr(file)
    over = threading.Event()
    thread = threading.Thread(target=_listen, args=(file, press, over), daemon=True)
    # Without it a key counts after a line feed only, and would be shown in the table.
    tty.setcbreak(file)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        termios.tcsetattr(file, termios.TCSADRAIN, kept)


def _input() -> int | None:
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError):  # closed, or something that is no file
        return None


def _listen(file: int, press: Callable[[str], None], over: threading.Event) -> None:
    # With a limit: a read cannot be woken, and the terminal must not be left in this mode.
    while not over.is_set():
        if select.select([file], [], [], LOOK_S)[0]:
            read = os.read(file, 96)  # an arrow is three bytes, and a held key repeats itself
            if not read:
                return
            for key in KEY.findall(read):
                press(ARROWS.get(key) or key.decode("ascii", "replace"))
