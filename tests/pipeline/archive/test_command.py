"""The arguments of the module's own command line become wishes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from pipeline.archive import command, journal, replay
from pipeline.operations.manner import Manner


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_commands(parser.add_subparsers(dest="command", required=True))
    return parser.parse_args(words)


def wished(monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    asked: list[Any] = []

    def take(wish: Any) -> int:
        asked.append(wish)
        return 0

    monkeypatch.setattr(journal, "journal", take)
    monkeypatch.setattr(replay, "replay", take)
    given = parsed(*words)
    assert given.command in command.VERBS
    assert command.done(given) == 0
    return asked[0]


def test_archiving_has_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    found = wished(monkeypatch, "journal", "ticks", "--to", "a", "--compact")
    assert found == journal.Wish(
        topic="ticks",
        archive=Path("a"),
        gateway="http://127.0.0.1:8080",
        checkpoint=None,
        interval="10s",
        compact=True,
        manner=Manner(),
    )


def test_a_replay_says_what_and_how_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--topic", "t", "--source-topic=s", "--rate=10x", "--max-gap=2s", "--from=1"]
    found = wished(monkeypatch, "replay", "a", *words, "--until=2", "--time-field=/ts")
    assert found == replay.Wish(
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
