"""Log lines."""

import json
import logging
import sys
from datetime import datetime

import pytest

from tidegate.app.logs import (
    LIBRARY_LEVELS,
    JsonFormatter,
    OneLineFormatter,
    configure_logging,
    event,
    shown_id,
)


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
    uvicorn = logging.getLogger("uvicorn")  # a server in this process may have set it up
    monkeypatch.setattr(uvicorn, "handlers", [])
    monkeypatch.setattr(uvicorn, "propagate", True)
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


def test_json_has_an_object_a_line_with_the_events_name_and_figures() -> None:
    extra = event("session-closed", session="abc…", reason="SHUTDOWN")
    shown = json.loads(json_line("session closed\nforged", **extra))
    assert datetime.fromisoformat(shown.pop("at")).tzinfo is not None
    assert shown == {
        "level": "error",
        "logger": "tidegate.x",
        "event": "session-closed",
        "message": "session closed\nforged",
        "session": "abc…",
        "reason": "SHUTDOWN",
    }


def test_json_stays_on_its_line_whatever_it_holds() -> None:
    try:
        raise ValueError("broken\nin two")
    except ValueError:
        line = json_line("it\u2028 failed \ud800", exc_info=sys.exc_info())
    assert len(line.splitlines()) == 1
    shown = json.loads(line)
    assert shown["message"] == "it\u2028 failed \\ud800"
    assert shown["event"] == "message"
    assert shown["traceback"].endswith("broken\nin two")


def test_a_shown_session_id_is_recognisable_and_not_whole() -> None:
    assert shown_id("0123456789abcdef") == "01234567…"


def json_line(message: str, **extra: object) -> str:
    record = logging.LogRecord("tidegate.x", logging.ERROR, "f.py", 1, message, (), None)
    record.__dict__.update(extra)
    return JsonFormatter().format(record)
