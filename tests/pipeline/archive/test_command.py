"""The arguments of the module's own command line become wishes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.pipeline import command
from tidegate.pipeline.archive import journal, replay
from tidegate.pipeline.operations.run_options import RunOptions


def wished(monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    asked: list[Any] = []

    def take(wish: Any) -> int:
        asked.append(wish)
        return 0

    monkeypatch.setattr(journal, "journal", take)
    monkeypatch.setattr(replay, "replay", take)
    assert command.command(words) == 0
    return asked[0]


def test_archiving_has_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    found = wished(monkeypatch, "journal", "ticks", "--to", "a", "--compact")
    assert found == journal.JournalArguments(
        topic="ticks",
        archive=Path("a"),
        gateway="http://127.0.0.1:8080",
        checkpoint=None,
        interval="10s",
        compact=True,
        manner=RunOptions(),
    )


def test_a_replay_says_what_and_how_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--topic", "t", "--source-topic=s", "--rate=10x", "--max-gap=2s", "--from=1"]
    found = wished(monkeypatch, "replay", "a", *words, "--until=2", "--time-field=/ts")
    assert found == replay.ReplayArguments(
        path=Path("a"),
        topic="t",
        source_topic="s",
        gateway="http://127.0.0.1:8080",
        rate="10x",
        max_gap="2s",
        from_time="1",
        until_time="2",
        time_field="/ts",
        time_unit="auto",
        checkpoint=None,
    )
