from __future__ import annotations

import pyarrow as pa

from tidegate.pipeline.views.members import Members


def test_records_of_a_group_stand_together_in_their_order() -> None:
    columns = {
        "group": list("babca"),
        "batch": [1, 1, 2, 2, 3],
        "file": ["f"] * 5,
        "block": [0] * 5,
        "position": [1, 2, 1, 2, 1],
        "cell_0": [b"1", b"2", None, b"4", b"5"],
    }
    members = Members.of(pa.table(columns))
    assert members.groups == ["b", "a", "c"]
    assert members.sizes.tolist() == [2, 2, 1]
    assert members.parts(members.cells(0).to_pylist()) == [[b"1", None], [b"2", b"5"], [b"4"]]
    assert members.places(members.ends - 1) == [(2, "f", 0, 1), (3, "f", 0, 1), (2, "f", 0, 2)]
