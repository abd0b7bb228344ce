"""Parts come to what an aggregate over all values says, wherever the records are."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.keys.projection import Aggregate, Projection
from tidegate.pipeline.views.cells import CellReader
from tidegate.pipeline.views.members import Members
from tidegate.pipeline.views.partials import parts_of

TEXTS = ("1", "1.0", "-2.5", "1e300", "null", '""', '"x"', '"12"', '"a"', "true", "[3]", "{}")
values = st.lists(st.tuples(st.sampled_from(TEXTS), st.integers(0, 2)), min_size=1, max_size=12)


@rule("view-4", "view-5", "view-9")
@pytest.mark.parametrize("aggregate", [*(f"{name}(/v) AS /x" for name in Aggregate), "/v AS /x"])
@examples(60, nightly=2_000)
@given(values, st.randoms(use_true_random=False))
def test_parts_in_any_order_are_the_whole(
    aggregate: str, found: list[tuple[str, int]], chance: object
) -> None:
    projection = Projection.parse(f"[{aggregate}]", 0, "[/g]", 0)
    [column] = projection.columns
    bodies = [f'{{"v":{text}}}'.encode() for text, _ in found]
    cells = CellReader(projection).columns(bodies)[-1]
    parts = []
    for task in {task for _, task in found}:
        here = [at for at, (_, mine) in enumerate(found) if mine == task]
        records = pa.table(
            {
                "group": ["g"] * len(here),
                "batch": here,
                "file": [""] * len(here),
                "block": [0] * len(here),
                "position": [0] * len(here),
                "cell_0": cells.take(pa.array(here)),
            }
        )
        members = Members.of(records)
        parts += parts_of(column).of(members.cells(0), members)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(parts))
    chance.shuffle(stored)  # type: ignore[attr-defined]  # hypothesis gives a Random
    assert parts_of(column).shown(stored) == column.result(bodies)
