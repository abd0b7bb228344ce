"""The arguments of whatever goes on until it is stopped."""

from __future__ import annotations

import argparse

import pytest

from pipeline.operations.manner import ONWARD, Manner, add_manner


def read(*words: str) -> Manner:
    parser = argparse.ArgumentParser()
    add_manner(parser)
    return Manner.of(parser.parse_args(words))


def test_without_arguments_it_goes_on_here() -> None:
    assert read() == ONWARD
    assert ONWARD.goes_on


def test_each_argument_counts() -> None:
    words = ["--master", "local[1]", "--metrics-port=9", "--metrics-host=::1", "--no-restart"]
    assert read(*words) == Manner("local[1]", False, False, 9, "::1")


@pytest.mark.parametrize("word", ["--available-now", "--no-restart"])
def test_what_ends_is_not_started_again(word: str) -> None:
    """Rule 581."""
    assert not read(word).goes_on
