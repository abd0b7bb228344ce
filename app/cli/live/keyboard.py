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

POLL_S = 0.1  # how often the thread checks whether it is to stop
KEY = re.compile(rb"\x1b\[[A-D]|.", re.DOTALL)
ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left"}


@contextlib.contextmanager
def keys(press: Callable[[str], None], file: int | None = None) -> Iterator[None]:
    """Call `press` with each key, from another thread; do nothing without a terminal.

    Keys are characters, and `up`, `down`, `left`, `right`. Ctrl-C stays an interrupt.
    """
    file = _input() if file is None else file
    if file is None or not os.isatty(file):
        yield
        return
    kept = termios.tcgetattr(file)
    stopped = threading.Event()
    thread = threading.Thread(target=_listen, args=(file, press, stopped), daemon=True)
    # Otherwise a key would arrive only after a line feed, and be echoed into the table.
    tty.setcbreak(file)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        termios.tcsetattr(file, termios.TCSADRAIN, kept)


def _input() -> int | None:
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError):  # closed, or something that is no file
        return None


def _listen(file: int, press: Callable[[str], None], stopped: threading.Event) -> None:
    # `select` with a timeout: a read cannot be woken, and the terminal must leave this mode.
    while not stopped.is_set():
        if select.select([file], [], [], POLL_S)[0]:
            read = os.read(file, 96)  # an arrow is three bytes, and a held key repeats itself
            if not read:
                return
            for key in KEY.findall(read):
                press(ARROWS.get(key) or key.decode("ascii", "replace"))
