"""Times as users write them (rule 154), against Python's own calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflation.language.iso_time import parse_time, time_text
from tests.support.profiles import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON_MS = 1_757_419_200_000  # 2025-09-09T12:00:00Z


@pytest.mark.parametrize(
    ("text", "after_noon_ms"),
    [
        ("2025-09-09T12:00:00Z", 0),
        ("2025-09-09T12:00:00", 0),
        ("2025-09-09T12:00", 0),
        ("2025-09-09", -43_200_000),
        ("20250909T120000Z", 0),
        ("20250909T120000", 0),
        ("20250909T1200Z", 0),
        ("20250909", -43_200_000),
        ("2025-09-09T12:00:00.5Z", 500),
        ("2025-09-09T12:00:00.976304Z", 977),
        ("20250909T120000.000000001Z", 1),
        ("2025-09-09T12:00:00.999000Z", 999),
        ("2025-09-09T14:00:00+02:00", 0),
        ("2025-09-09T14:00:00+0200", 0),
        ("2025-09-09T06:30:00-05:30", 0),
    ],
)
def test_a_time_is_read(text: str, after_noon_ms: int) -> None:
    assert parse_time(text) == NOON_MS + after_noon_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2025-9-9",
        "2025-09-09 12:00:00",
        "2025-09-09T12",
        "2025-09-09T1200:00",
        "2025-09-09T12:00:00+02",
        "2025-09-09T12:00:00z",
        "2025-0909T12:00:00",
        "0000-01-01",
        "2025-13-01",
        "2025-00-01",
        "2025-02-29",
        "2100-02-29",
        "2025-09-31",
        "2025-09-00",
        "2025-09-09T24:00:00",
        "2025-09-09T12:60:00",
        "2025-09-09T12:00:60",
        "2025-09-09T12:00:00+15:00",
        "2025-09-09T12:00:00.Z",
        "\u0662025-09-09",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a time|there is no such"):
        parse_time(text)


@examples(300, nightly=20_000)
@given(st.datetimes(timezones=st.just(UTC)))
def test_all_days_are_those_of_the_calendar(moment: datetime) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1_000 * 1_000)
    expected_ms = (moment - EPOCH) // timedelta(milliseconds=1)
    assert parse_time(moment.isoformat()) == expected_ms
    assert parse_time(time_text(expected_ms)) == expected_ms


def test_the_canonical_spelling() -> None:
    assert time_text(NOON_MS) == "2025-09-09T12:00:00Z"
    assert time_text(NOON_MS + 7) == "2025-09-09T12:00:00.007Z"
    assert time_text(-1) == "1969-12-31T23:59:59.999Z"
    assert time_text(951_782_400_000) == "2000-02-29T00:00:00Z"
