"""Records as tables of PyArrow, pandas and polars, none of which the client requires."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

INT64 = range(-(2**63), 2**63)
EXACT_IN_FLOAT = range(-(2**53), 2**53 + 1)


def to_arrow(values: list[Any]) -> pyarrow.Table:
    """Return values as a table: a column for each field, in the order of first appearance.

    A column has one type. Where its values have several, or integers that no type of Arrow takes,
    it is their JSON text.

    Raises:
        ModuleNotFoundError: PyArrow is not installed.
    """
    arrow = _needed("pyarrow", "to_arrow")
    records = [value if isinstance(value, dict) else {"value": value} for value in values]
    names = dict.fromkeys(name for record in records for name in record)
    columns = {name: [record.get(name) for record in records] for name in names}
    return arrow.table({name: _column(arrow, column) for name, column in columns.items()})


def to_pandas(values: list[Any]) -> pandas.DataFrame:
    """Return values as a frame of pandas.

    Raises:
        ModuleNotFoundError: PyArrow or pandas is not installed.
    """
    frames = _needed("pandas", "to_pandas")
    # pandas' own types have no integer that may be missing: they would round 2^53 + 1.
    return to_arrow(values).to_pandas(types_mapper=frames.ArrowDtype)


def to_polars(values: list[Any]) -> polars.DataFrame:
    """Return values as a frame of polars.

    Raises:
        ModuleNotFoundError: PyArrow or polars is not installed.
    """
    frame: polars.DataFrame = _needed("polars", "to_polars").from_arrow(to_arrow(values))
    return frame


def _column(arrow: Any, column: list[Any]) -> Any:
    integers = {each for each in column if isinstance(each, int) and not isinstance(each, bool)}
    is_mixed = any(isinstance(each, float) for each in column)
    # In a column with floats, Arrow converts integers to floats and rounds long ones.
    allowed = EXACT_IN_FLOAT if is_mixed else INT64
    if all(each in allowed for each in integers):
        try:
            return arrow.array(column)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError):
            pass
    texts = [None if each is None else msgspec.json.encode(each).decode() for each in column]
    return arrow.array(texts, arrow.string())


def _needed(module: str, method: str) -> Any:
    # By name: the client is installed without them, and its import must not load them.
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ModuleNotFoundError(
            f"{method}() needs {module}, which is not installed: "
            "install the extra frames of Tidegate",
            name=module,
        ) from None
