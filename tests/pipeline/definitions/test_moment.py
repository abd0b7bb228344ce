"""Moments as users write them."""

from __future__ import annotations

import pytest

from pipeline.definitions.moment import moment_ms, moment_text

NOON_MS = 1_795_262_400_000


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1795262400000", NOON_MS),
        ("2026-11-21T12:00:00Z", NOON_MS),
        ("2026-11-21T12:00", NOON_MS),
        ("2026-11-21T13:00:00+01:00", NOON_MS),
        ("20261121T120000Z", NOON_MS),
        ("2026-11-21T12:00:00.0001Z", NOON_MS + 1),
        ("2026-11-21", NOON_MS - 43_200_000),
        ("20261121", NOON_MS - 43_200_000),
    ],
)
def test_a_moment_is_iso_or_milliseconds(text: str, time_ms: int) -> None:
    assert moment_ms(text) == time_ms


@pytest.mark.parametrize("text", ["", "now", "12", "2026-13-01", "1e12", "-5", "1" * 16])
def test_other_texts_are_none(text: str) -> None:
    assert moment_ms(text) is None


def test_a_moment_is_written_so_that_it_can_be_read() -> None:
    assert moment_text(NOON_MS + 7) == "2026-11-21T12:00:00.007Z"
    assert moment_ms(moment_text(NOON_MS + 7)) == NOON_MS + 7
