"""Cells of CSV are read in their usual spellings, and nothing else is taken for a value."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.rules import rule
from tidegate.pipeline.files.csv_values import values_of

NOON = datetime(2024, 1, 2, 12, 0, tzinfo=UTC)

TAKEN: list[tuple[str, str, Any]] = [
    ("string", " x ", " x "),
    ("boolean", "TRUE", True),
    ("int", "-007", -7),
    ("int", " +2147483647 ", 2**31 - 1),
    ("long", "-9223372036854775808", -(2**63)),
    ("double", "1.50", 1.5),
    ("double", "+.5e-3", 0.0005),
    ("double", "-0", -0.0),
    ("float", "16777217", 16777216.0),
    ("decimal(10,2)", "1,000.5", Decimal("1000.50")),
    ("decimal(10,2)", "-1.005", Decimal("-1.01")),
    ("decimal(5,0)", "1e4", Decimal(10_000)),
    ("date", "2024-01-02", date(2024, 1, 2)),
    ("timestamp", "2024-01-02", NOON.replace(hour=0, tzinfo=None)),
    ("timestamp", "2024-01-02 12:00", NOON.replace(tzinfo=None)),
    ("timestamp", "2024-01-02T13:00:00+01:00", NOON.replace(tzinfo=None)),
    ("timestamp", "2024-01-02T12:00:00.0000019Z", NOON.replace(tzinfo=None, microsecond=1)),
]
REFUSED = {
    "boolean": ["yes", "1", "\u017f", ""],
    "int": ["1.0", "2147483648", "0x1F", "1_0", "\uff11", "--1", "1 0"],
    "long": ["9223372036854775808", "1e3"],
    "double": ["1,5", "1_0", "0x1p3", "1d", "-", "one", "\uff11"],
    "decimal(10,2)": ["NaN", "1_0", "123456789.5", "1e30", "1e9999999999", "\uff11", "."],
    "date": ["2024-1-2", "2024-02-30", "20240102", "12:30", "2024-01-02T12:00"],
    "timestamp": ["12:30", "2024-02-30", "2024-01-02 24:00", "2024-01-02 12:00 PST", "now"],
}


@pytest.mark.parametrize(("kind", "cell", "value"), TAKEN)
def test_usual_spellings_are_values(kind: str, cell: str, value: object) -> None:
    values, is_wrong = values_of(kind, pa.array([cell, None, cell], pa.string()))
    assert values.to_pylist() == [value, None, value]
    assert not is_wrong.any()


@rule("pipeline-7")
@pytest.mark.parametrize("kind", REFUSED)
def test_other_spellings_are_no_values_and_do_no_harm_to_others(kind: str) -> None:
    [good, value] = next([cell, value] for name, cell, value in TAKEN if name == kind)
    wrong = REFUSED[kind]
    cells = [good, *wrong, None, good]
    values, is_wrong = values_of(kind, pa.array(cells, pa.string()))
    assert values.to_pylist() == [value, *[None] * (len(wrong) + 1), value]
    assert is_wrong.tolist() == [False, *[True] * len(wrong), False, False]


@rule("pipeline-7")
@pytest.mark.parametrize("name", ["NaN", "inf", "-Infinity", "1e400"])
def test_numbers_that_json_lacks_are_read_to_be_refused_by_name(name: str) -> None:
    values, is_wrong = values_of("double", pa.array([name], pa.string()))
    assert not is_wrong.any()
    assert not pc.is_finite(values)[0].as_py()
