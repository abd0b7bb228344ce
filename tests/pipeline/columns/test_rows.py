from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.rules import rule
from tidegate.pipeline.columns import rows


@pytest.mark.parametrize("columns", [rows.PUBLISHED, rows.SENT])
def test_columns_are_spelled_for_spark_and_for_arrow(columns: str) -> None:
    schema = rows.arrow_schema(columns)
    spelled = {pa.string(): "string", pa.int64(): "long", pa.binary(): "binary"}
    assert columns == ", ".join(f"{field.name} {spelled[field.type]}" for field in schema)


@rule("pipeline-5")
def test_nothing_says_which_messages_are_not_to_be_conflated() -> None:
    assert rows.arrow_schema(rows.PUBLISHED).names == [
        "file",
        "block",
        "position",
        "time_ms",
        "key",
        "body",
        "removed",
        "refused",
    ]
