"""A worker knows its place among those of its parent."""

from __future__ import annotations

import dataclasses

import pytest

from app.crew import Crew


def test_its_place_stays() -> None:
    crew = Crew("c1", 2, 3)
    assert crew == Crew("c1", 2, 3) != Crew("c2", 2, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        crew.number = 1  # type: ignore[misc]  # that is what is tried
