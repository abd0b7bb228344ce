"""Keys reach the table while it is drawn, and the terminal is left as it was."""

from __future__ import annotations

import os
import queue
import termios

from tests.support.deadlines import HANGS_S
from tidegate.app.cli.live.keyboard import keys


def test_keys_are_heard_one_by_one_without_a_line_feed() -> None:
    near, far = os.openpty()
    try:
        before = termios.tcgetattr(far)
        pressed: queue.Queue[str] = queue.Queue()
        with keys(pressed.put, far):
            for sent, name in ((b"r", "r"), (b"\x1b[C", "right"), (b"\x1b[A", "up")):
                os.write(near, sent)
                assert pressed.get(timeout=HANGS_S) == name
            os.write(near, b"\x1b[C\x1b[Cr")  # a key that is held, or a fast hand
            assert [pressed.get(timeout=HANGS_S) for _ in range(3)] == ["right", "right", "r"]
        assert termios.tcgetattr(far) == before
    finally:
        os.close(near)
        os.close(far)


def test_what_is_no_terminal_has_no_keys() -> None:
    reading, writing = os.pipe()
    pressed: list[str] = []
    try:
        os.write(writing, b"q")
        with keys(pressed.append, reading):
            pass
        assert os.read(reading, 1) == b"q"
        assert not pressed
    finally:
        os.close(reading)
        os.close(writing)
