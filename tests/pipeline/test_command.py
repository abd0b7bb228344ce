"""The arguments of `python -m tidegate.pipeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from tests.support.rules import rule
from tidegate.pipeline.archive import journal, replay
from tidegate.pipeline.command import ON_SPARK, command, with_options
from tidegate.pipeline.operations.supervisor import DEFAULT_OPTIONS, RunOptions


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run", "nothing to run"),
        ("run a.toml --checkpoints c", "--checkpoints goes with --topics"),
        ("journal t --to s3a://b/t", "Invalid value for '--to': s3a://b/t is an address"),
    ],
)
def test_what_makes_no_sense_is_2(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(words.split()) == 2
    assert capsys.readouterr().err.startswith(f"tidegate: {said}")


def test_a_definition_that_is_not_there_is_78(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["run", str(tmp_path / "none.toml")]) == 78
    assert capsys.readouterr().err.count("\n") == 1


def arguments_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    asked: list[Any] = []

    def take(arguments: Any) -> int:
        asked.append(arguments)
        return 0

    monkeypatch.setattr(journal, "journal", take)
    monkeypatch.setattr(replay, "replay", take)
    assert command(words) == 0
    return asked[0]


def test_archiving_has_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    found = arguments_of(monkeypatch, "journal", "ticks", "--to", "a", "--compact")
    assert found == journal.JournalArguments(
        topic="ticks",
        archive=Path("a"),
        gateway="http://127.0.0.1:8080",
        checkpoint=None,
        interval="10s",
        compact=True,
        options=RunOptions(),
    )


def test_a_replay_says_what_and_how_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--topic", "t", "--source-topic=s", "--rate=10x", "--max-gap=2s", "--from=1"]
    words += ["--until=2", "--time-field=/ts", "--key=/a,/b", "--key=/c"]
    found = arguments_of(monkeypatch, "replay", "a", *words)
    assert found == replay.ReplayArguments(
        path=Path("a"),
        topic="t",
        keys=["/a,/b", "/c"],
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


def read(*words: str) -> RunOptions:
    taken: list[RunOptions] = []

    @click.command()
    @with_options(*ON_SPARK)
    def verb(options: RunOptions) -> int:
        taken.append(options)
        return 0

    assert verb.main(words, standalone_mode=False) == 0
    return taken[0]


def test_the_defaults_run_forever_on_this_machine() -> None:
    assert read() == DEFAULT_OPTIONS
    assert DEFAULT_OPTIONS.goes_on


def test_each_argument_counts() -> None:
    words = ["--master", "local[1]", "--metrics-port=9", "--metrics-host=::1", "--no-restart"]
    assert read(*words) == RunOptions("local[1]", False, False, 9, "::1")


@rule("pipeline-10")
@pytest.mark.parametrize("word", ["--available-now", "--no-restart"])
def test_what_ends_is_not_started_again(word: str) -> None:
    assert not read(word).goes_on
