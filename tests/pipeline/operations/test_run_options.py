"""The arguments of whatever goes on until it is stopped."""

from __future__ import annotations

import click
import pytest

from tests.support.rules import rule
from tidegate.pipeline.operations.run_options import ONWARD, RunOptions, with_manner


def read(*words: str) -> RunOptions:
    taken: list[RunOptions] = []

    @click.command()
    @with_manner
    def command(manner: RunOptions) -> int:
        taken.append(manner)
        return 0

    assert command.main(words, standalone_mode=False) == 0
    return taken[0]


def test_without_arguments_it_goes_on_here() -> None:
    assert read() == ONWARD
    assert ONWARD.goes_on


def test_each_argument_counts() -> None:
    words = ["--master", "local[1]", "--metrics-port=9", "--metrics-host=::1", "--no-restart"]
    assert read(*words) == RunOptions("local[1]", False, False, 9, "::1")


@rule("pipeline-10")
@pytest.mark.parametrize("word", ["--available-now", "--no-restart"])
def test_what_ends_is_not_started_again(word: str) -> None:
    assert not read(word).goes_on
