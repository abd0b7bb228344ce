"""Arguments with units and bounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from app.cli.arguments import count, port, seconds
from app.cli.command import build_parser
from app.cli.errors import UsageInvalid


def test_what_is_taken() -> None:
    assert (seconds("10s"), seconds("500ms"), seconds("2M")) == (10.0, 0.5, 120.0)
    assert (count("1"), port("0"), port("65535")) == (1, 0, 65535)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (seconds, "10"),
        (seconds, "-1s"),
        (seconds, "1.5s"),
        (count, "0"),
        (count, "-1"),
        (count, "1e3"),
        (count, "²"),
        (port, "65536"),
        (port, "http"),
    ],
)
def test_what_is_not(read: Callable[[str], float], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        read(text)


@pytest.mark.parametrize(
    "words",
    [
        "publish px --rate 100 ticks.ndjson",
        "publish px ticks.ndjson --rate 100",
        "publish --rate 100 px ticks.ndjson",
    ],
)
def test_options_stand_before_between_or_behind(words: str) -> None:
    found = build_parser().parse_args(words.split())
    assert (found.verb, found.topic, found.file, found.rate) == (
        "publish", "px", "ticks.ndjson", "100"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("publish px a b", "unrecognized arguments: b"),
        ("publish px --rat 100 a", "unrecognized arguments: --rat"),
        ("publish --rate 100", "required: TOPIC"),
        ("publish px a --rate", "expected one argument"),
    ],
)
def test_what_is_no_argument_is_still_none(words: str, said: str) -> None:
    with pytest.raises(UsageInvalid, match=said):
        build_parser().parse_args(words.split())
