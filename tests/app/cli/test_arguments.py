"""Arguments with units and bounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from app.cli.arguments import count, port, seconds


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
