"""The cases of `tests/vectors/`, which every reader and writer of a format has to pass."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from dev import ROOT

FOLDER = ROOT / "tests" / "vectors"
FILES = ("paths", "keys", "order", "numbers", "durations", "deltas", "resume")

Vector = dict[str, Any]


@functools.cache
def lists(file: str) -> dict[str, list[Vector]]:
    """The lists of a file."""
    found: dict[str, list[Vector]] = json.loads((FOLDER / f"{file}.json").read_text())
    return found


def vectors(file: str, name: str) -> list[Vector]:
    """The cases of one list, such as `paths` and `refused`."""
    return lists(file)[name]


def each_vector(file: str, name: str) -> pytest.MarkDecorator:
    """Run a test once for each case of a list, as its argument `vector`."""
    cases = vectors(file, name)
    return pytest.mark.parametrize("vector", cases, ids=[case["why"] for case in cases])
