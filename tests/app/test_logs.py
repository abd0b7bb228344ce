"""Log lines."""

import logging
import sys

import pytest

from app.logs import LIBRARY_LEVELS, OneLineFormatter, configure_logging


def line_of(message: str, **extra: object) -> str:
    record = logging.LogRecord("tidegate.x", logging.ERROR, "f.py", 1, message, (), None)
    record.__dict__.update(extra)
    return OneLineFormatter().format(record)


def test_an_event_is_one_line_that_cannot_be_forged() -> None:
    line = line_of("a\r\n2026 INFO forged\x1b[31m\u2028\u202e")
    assert line.endswith("ERROR tidegate.x: a\\r\\n2026 INFO forged\\x1b[31m\\u2028\\u202e")


def test_a_traceback_stays_on_its_line() -> None:
    try:
        raise ValueError("broken\nin two")
    except ValueError:
        line = line_of("it failed", exc_info=sys.exc_info())
    assert "\n" not in line
    assert "ValueError: broken\\nin two" in line


def test_libraries_speak_when_something_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    before = {name: logging.getLogger(name).level for name in LIBRARY_LEVELS}
    try:
        configure_logging("debug")
        logging.getLogger("tidegate.x").debug("ours")
        logging.getLogger("sse_starlette.sse").debug("a payload")
        logging.getLogger("uvicorn.error").warning("trouble")
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
    logged = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[1] for line in logged] == ["ours", "trouble"]
