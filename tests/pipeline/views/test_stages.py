from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.pipeline.views.tasks import Kept, Stage, view
from tidegate.keys.path import FieldPath
from tidegate.pipeline.columns.rows import arrow_schema
from tidegate.pipeline.views.links import ROUTED, Join
from tidegate.pipeline.views.records import PARTS
from tidegate.pipeline.views.stages import CHANGED, Viewing

JOIN = Join(((FieldPath.parse("/s"), FieldPath.parse("/s")),), FieldPath.parse("/q"))
REFUSED = {"file": "f", "block": 0, "position": 3, "value": b"{", "messages": 1, "refused": "odd"}


def rows(columns: str, *found: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(found), schema=arrow_schema(columns))


@pytest.mark.parametrize(
    ("name", "columns"),
    [("records", CHANGED), ("groups", PARTS), ("routes", CHANGED), ("pairs", ROUTED)],
)
def test_what_was_refused_goes_along_and_each_shard_keeps_its_table(
    name: str, columns: str
) -> None:
    kept = Kept()
    viewing = Viewing(view("[SUM(/v) AS /v]"), JOIN, 0, 2, kept)
    stage: Stage = getattr(viewing, name)
    batch = rows(columns, {"home": 1}, {**REFUSED, "home": 0}, {"home": 0})
    found = [row for each in stage(iter([batch])) for row in each.to_pylist()]
    assert [{name: row[name] for name in REFUSED} for row in found] == [REFUSED]
    stages = {"routes": {"lefts", "rights"}, "pairs": {"pairs", "records"}}.get(name, {name})
    assert set(kept.written) == {(stage, shard) for stage in stages for shard in (0, 1)}


def test_stages_that_keep_something_have_names() -> None:
    grouped = view("[SUM(/v) AS /v]")
    tables = Kept()
    assert Viewing(grouped, None, 0, 1, tables).stages == ("records", "groups")
    assert Viewing(None, JOIN, 0, 1, tables).stages == ("lefts", "rights", "pairs")
