"""What users ask of an archive is what the pipeline's own command line is asked."""

from __future__ import annotations

import argparse

import pytest

from app.cli import command as cli
from pipeline.archive import command


def handed_on(monkeypatch: pytest.MonkeyPatch, *words: str) -> argparse.Namespace:
    """The pipeline's own arguments, once the process would have become its."""
    became: list[list[str]] = []
    monkeypatch.setattr("app.cli.pipeline._become", lambda words: became.append(words))
    arguments = cli.build_parser().parse_args(["pipeline", *words])
    arguments.run(arguments)
    [[_, *options, verb], rest] = [became[0][:5], became[0][5:]]
    assert options == ["-P", "-m", "pipeline"]
    parser = argparse.ArgumentParser()
    command.add_commands(parser.add_subparsers(dest="command", required=True))
    return parser.parse_args([verb, *rest])


def test_archiving_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["journal", "ticks", "--to", "a", "--available-now", "--interval", "1m"]
    given = handed_on(monkeypatch, *words, "--checkpoint=-c", "--master=local[1]")
    assert (given.command, given.topic, str(given.to)) == ("journal", "ticks", "a")
    assert (given.available_now, given.compact, given.interval) == (True, False, "1m")
    assert (str(given.checkpoint), given.master) == ("-c", "local[1]")
    assert handed_on(monkeypatch, "journal", "t", "--to=a", "--compact").compact


def test_a_replay_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["replay", "a", "--topic", "t", "--from=2026-11-21", "--until", "2026-11-22"]
    given = handed_on(monkeypatch, *words, "--rate", "500KB", "--max-gap", "2s")
    assert (given.command, str(given.path), given.topic) == ("replay", "a", "t")
    assert (given.from_time, given.until) == ("2026-11-21", "2026-11-22")
    assert (given.rate, given.max_gap, given.source_topic) == ("500KB", "2s", None)
