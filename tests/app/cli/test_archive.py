"""What users ask of an archive is what the pipeline's own command line is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import parsed
from tidegate.pipeline import command
from tidegate.pipeline.archive import journal, replay


def handed_on(monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    """What the pipeline's own process is asked to do, once the command would have become it."""
    became: list[list[str]] = []
    wishes: list[Any] = []

    def take(wish: Any) -> int:
        wishes.append(wish)
        return 0

    monkeypatch.setattr("tidegate.app.cli.pipeline.become", became.append)
    verb = parsed("pipeline", *words)
    verb.command.invoke(verb)
    assert became[0][1:4] == ["-P", "-m", "tidegate.pipeline"]
    for module in (journal, replay):
        monkeypatch.setattr(module, words[0], take, raising=False)
    assert command.command(became[0][4:]) == 0
    return wishes[0]


def test_archiving_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["journal", "ticks", "--to", "a", "--available-now", "--interval", "1m"]
    wish = handed_on(monkeypatch, *words, "--checkpoint=-c", "--master=local[1]")
    assert (wish.topic, wish.archive, wish.checkpoint) == ("ticks", Path("a"), Path("-c"))
    assert (wish.manner.available_now, wish.compact, wish.interval) == (True, False, "1m")
    assert wish.manner.master == "local[1]"
    assert handed_on(monkeypatch, "journal", "t", "--to=a", "--compact").compact


def test_a_replay_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["replay", "a", "--topic", "t", "--from=2026-11-21", "--until", "2026-11-22"]
    wish = handed_on(monkeypatch, *words, "--rate", "500KB", "--max-gap", "2s")
    assert (wish.path, wish.topic) == (Path("a"), "t")
    assert (wish.from_time, wish.until_time) == ("2026-11-21", "2026-11-22")
    assert (wish.rate, wish.max_gap, wish.source_topic) == ("500KB", "2s", None)
