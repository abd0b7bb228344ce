"""Records become tables in which no number is another one."""

from __future__ import annotations

import builtins
import importlib
from typing import Any

import pytest

from tidegate.clients.live.frames import to_arrow, to_pandas, to_polars
from tidegate.clients.live.records import Records
from tidegate.clients.live.request import LiveRequest
from tidegate.clients.sse import Event

BIG = 9007199254740993
HUGE = 2**63
VALUES: list[Any] = [
    {"id": BIG, "price": 1.5, "size": 3, "name": "a", "tags": ["x"], "far": 1, "mixed": 1},
    {"id": BIG + 2, "price": 2, "size": None, "tags": None, "far": HUGE, "mixed": "one"},
    {"id": -BIG, "price": 2.5, "deep": {"a": 1}, "far": 2, "mixed": True},
]


def test_a_table_has_a_column_for_each_field_and_exact_integers() -> None:
    table = to_arrow(VALUES)
    assert table.column_names == [
        "id", "price", "size", "name", "tags", "far", "mixed", "deep"
    ]  # fmt: skip
    assert table["id"].to_pylist() == [BIG, BIG + 2, -BIG]
    assert table["price"].to_pylist() == [1.5, 2.0, 2.5]
    assert table["size"].to_pylist() == [3, None, None]
    assert table["far"].to_pylist() == ["1", str(HUGE), "2"]
    assert table["mixed"].to_pylist() == ["1", '"one"', "true"]
    assert table["tags"].to_pylist() == [["x"], None, None]
    assert table["deep"].to_pylist() == [None, None, {"a": 1}]


def test_a_long_integer_beside_a_float_is_not_rounded() -> None:
    assert to_arrow([{"n": BIG}, {"n": 0.5}])["n"].to_pylist() == [str(BIG), "0.5"]
    assert to_arrow([{"n": 2**53}, {"n": 0.5}])["n"].to_pylist() == [2.0**53, 0.5]


def test_integers_inside_of_lists_are_exact() -> None:
    nested = [{"n": [BIG, 0.5], "deep": {"m": HUGE}}]
    assert to_arrow(nested)["n"].to_pylist() == [f"[{BIG},0.5]"]
    assert to_arrow(nested)["deep"].to_pylist() == [f'{{"m":{HUGE}}}']


def test_values_that_are_no_objects_are_one_column() -> None:
    assert to_arrow([1, 2]).to_pylist() == [{"value": 1}, {"value": 2}]
    assert to_arrow([]).num_rows == 0


def test_frames_are_exact_also_where_a_value_is_missing() -> None:
    missing = [{"id": BIG}, {"id": None}]
    assert to_pandas(missing)["id"].tolist()[0] == BIG
    assert to_polars(missing)["id"].to_list() == [BIG, None]


def records() -> Records:
    made = Records(LiveRequest("px", order_by="/n"))
    rows = [{"topic": "px", "op": "publish", "key": [n], "value": {"n": n}} for n in (2, 1)]
    import json

    made._take(Event("message", json.dumps({"topic": "px", "rows": rows})), print)
    return made


def test_a_live_dict_makes_them_in_its_order() -> None:
    made = records()
    assert made.to_arrow()["n"].to_pylist() == [1, 2]
    assert made.to_pandas()["n"].tolist() == [1, 2]
    assert made.to_polars()["n"].to_list() == [1, 2]


@pytest.mark.parametrize("module", ["pyarrow", "pandas", "polars"])
def test_what_is_not_installed_is_named_with_its_command(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> Any:
        if name == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return builtins.__import__(name)

    monkeypatch.setattr(importlib, "import_module", found)
    method = {"pyarrow": "to_arrow", "pandas": "to_pandas", "polars": "to_polars"}[module]
    with pytest.raises(ModuleNotFoundError, match=rf"needs {module}, .*the extra frames"):
        getattr(records(), method)()
