"""Rows of columns as JSON objects: what is null is left out, and JSON has not every number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

SHOWN_MAX = 200
# Always six digits, so that texts sort as times do.
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}


def quoted(name: str) -> str:
    """A column's name as SQL takes it, whatever stands in it."""
    return "`" + name.replace("`", "``") + "`"


def as_json(columns: Sequence[Column]) -> Column:
    """The object of these columns, in their order; times to the microsecond."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    return F.to_json(F.struct(*columns), _TIMES)


def beyond_json(schema: StructType, columns: Sequence[Column]) -> Column:
    """Which of the columns has a number that JSON has not, as a reason; null if none has."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    reasons = [
        F.when(_is_beyond(field.dataType, column), f"{field.name[:SHOWN_MAX]} is NaN or infinite")
        for field, column in zip(schema, columns, strict=True)
    ]
    return F.coalesce(*reasons, F.lit(None).cast("string"))


def _is_beyond(kind: DataType, value: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
    from pyspark.sql import types as T  # noqa: N812 - Spark's own custom

    match kind:
        case T.FloatType() | T.DoubleType():
            return F.isnan(value) | (F.abs(value) == float("inf"))
        case T.ArrayType():
            return F.exists(value, lambda one: _is_beyond(kind.elementType, one))
        case T.MapType():
            return F.exists(F.map_values(value), lambda one: _is_beyond(kind.valueType, one))
        case T.StructType():
            fields = [_is_beyond(one.dataType, value.getField(one.name)) for one in kind]
            return reduce(or_, fields, F.lit(False))
        case _:
            return F.lit(False)
