"""Tasks write the objects that Spark's own functions do; what they take of CSV, Spark reads alike.

Spark's `to_json` and `from_csv` are asked here, of values and lines that chance has made. Spark
takes more spellings of a value, and quotes in disorder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.rules import rule
from tidegate.pipeline.files.block_format import BlockFormat, fields_of
from tidegate.pipeline.files.csv_lines import csv_rows
from tidegate.pipeline.files.csv_values import values_of
from tidegate.pipeline.files.objects import Field, objects_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
CSV = {"escape": '"', "columnNameOfCorruptRecord": "_bad"}
ROWS = 2_000
BEYOND_JSON = re.compile("NaN|Infinity")  # such a row is refused
NAN, ENDLESS = float("nan"), float("inf")


class Chance(Random):
    """Values of all kinds, odd ones among them."""

    def text(self) -> str:
        letters = ["a", "é", '"', "\\", "\n", "\t", "\x01", "\x1f", "\x7f", "\u2028", "😀", "/", ""]
        return "".join(self.choices(letters, k=self.randrange(6)))

    def number(self) -> float:
        odd = [0.0, -0.0, 1e7, 9_999_999.999, 1e-3, 9.99e-4, 1e300, 1e-300, NAN, ENDLESS, -ENDLESS]
        numbers: list[float] = [
            self.randrange(10**7) / 100,
            float(self.randrange(-(10**12), 10**14)),
            self.choice(odd),
            self.randrange(10**9) / 10 ** self.randrange(15),
            -self.random() * 10.0 ** self.randrange(-10, 14),
        ]
        return self.choice(numbers)

    def small(self) -> float:
        with np.errstate(over="ignore"):
            return float(np.float32(self.number()))

    def micros(self) -> int:
        return self.randrange(-(10**16), 3 * 10**17)

    def decimal(self) -> Decimal:
        most = 1_000 if self.random() < 0.5 else 10**20
        return Decimal(self.randrange(-most, most)).scaleb(-10)

    def many(self, one: Callable[[], object]) -> list[object]:
        return [self.or_null(one) for _ in range(self.randrange(4))]

    def or_null(self, one: Callable[[], object]) -> Any:
        return None if self.random() < 0.2 else one()


def columns(chance: Chance) -> dict[str, pa.Array]:
    inner = pa.list_(pa.struct([("z", pa.string())]))
    kinds: dict[str, tuple[pa.DataType, Callable[[], object]]] = {
        'te"xt': (pa.string(), chance.text),
        "double": (pa.float64(), chance.number),
        "float": (pa.float32(), chance.small),
        "boolean": (pa.bool_(), lambda: chance.random() < 0.5),
        "int": (pa.int32(), lambda: chance.randrange(-(2**31), 2**31)),
        "unsigned": (pa.uint64(), lambda: chance.randrange(2**64)),
        "decimal": (pa.decimal128(20, 10), chance.decimal),
        "date": (pa.date32(), lambda: chance.randrange(-1_000_000, 20_000_000)),
        "utc": (pa.timestamp("us", "UTC"), chance.micros),
        "local": (pa.timestamp("ms"), lambda: chance.micros() // 1_000),
        "bytes": (pa.binary(), lambda: chance.randbytes(chance.randrange(5))),
        "list": (pa.list_(pa.float64()), lambda: chance.many(chance.number)),
        "map": (
            pa.map_(pa.string(), pa.string()),
            lambda: [(f"{at}{chance.text()}", chance.or_null(chance.text)) for at in range(2)],
        ),
        "days": (pa.map_(pa.date32(), pa.int64()), lambda: [(chance.randrange(9), 1)]),
        "struct": (
            pa.struct([("x", pa.float64()), ('y é"', inner)]),
            lambda: {
                "x": chance.or_null(chance.number),
                'y é"': chance.or_null(lambda: [{"z": chance.or_null(chance.text)}, None]),
            },
        ),
    }
    made = {
        name: pa.array([chance.or_null(one) for _ in range(ROWS)], kind)
        for name, (kind, one) in kinds.items()
    }
    texts = pa.array([chance.or_null(chance.text) for _ in range(ROWS)], pa.string())
    return made | {"dictionary": texts.dictionary_encode(), "nulls": pa.nulls(ROWS, pa.int64())}


@pytest.mark.nightly
@pytest.mark.spark
@rule("pipeline-7")
def test_rows_are_the_objects_that_spark_makes(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns(Chance(1))), path, row_group_size=700)
    rows = spark.read.parquet(str(path)).coalesce(1)
    made = rows.select(F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns)), TIMES))
    expected = [text for (text,) in made.collect()]
    fields = fields_of(rows.schema.json())
    batches = pq.ParquetFile(path).iter_batches(500)
    found = [text for each in batches for text in objects_of(fields, each.columns).to_pylist()]
    assert found == expected


def test_members_beside_follow_in_every_object() -> None:
    fields, column = [Field("a", "long")], pa.array([1, None])
    assert objects_of(fields, [column], '"day":7').to_pylist() == ['{"a":1,"day":7}', '{"day":7}']


def spelled(chance: Chance) -> str:
    """A number, more or less."""
    digits = "".join(chance.choices("0123456789", k=chance.randrange(12)))
    part = "".join(chance.choices("0123456789", k=chance.randrange(6)))
    odd = "NaN nan Infinity inf Inf -Inf +Infinity 0x1F 0x1p3 0x.8p-2 1_0 \uff11 1e400 1e-400 . -"
    sign, point = chance.choice(["", "", "-", "+"]), chance.choice(["", ".", ","])
    exponent = chance.choice(["", "", "", "e3", "E-2", "e+1", "e", "E36"])
    return chance.choice(
        [
            sign + digits + point + part + exponent + chance.choice(["", "", "d", "F", " ", "L"]),
            chance.choice(odd.split()) + chance.choice(["", " ", "f"]),
            str(chance.randrange(-(2**33), 2**33)),
            f"{chance.randrange(10**9):,}{chance.choice(['', '.5', '.555', '.005', '.995'])}",
            chance.choice(["true", "FALSE", "tRuE", "yes", " true", "1", "\u017f"]),
        ]
    )


YEARS = ["2020", "1970", "0001", "9999", "0000", "12345", "123456", "999", "-0001", "+2020"]
ZONES = [
    "Z", "z", "+1", "+01", "+1:0", "+01:00", "-01:30", "+0130", "+01:00:01", "+18:00", "+18:01",
    "+01:60", "+", "+1:", "+100", "UTC", "GMT", "UTC+1", "GMT+01:00", "PST", "EST", "BST",
    "Europe/Berlin", "America/New_York", "Etc/GMT+5", "Foo/Bar", "..", "../etc",
]  # fmt: skip


def day(chance: Chance) -> str:
    year = chance.choice(YEARS)
    texts = [
        year,
        chance.choice(["1", "01", "12", "13", "0", "002"]),
        chance.choice(["1", "29", "30", "31", "007"]),
    ]
    text = "-".join(texts[: chance.choice([1, 2, 3, 3, 3, 3])])
    return chance.choice(["", "", " "]) + text + chance.choice(["", "", " ", "T", "Tx", "-", "GMT"])


def moment(chance: Chance) -> str:
    text = chance.choice([day(chance), "2020-01-02", "2020-07-02", "2024-03-31"])
    text += chance.choice([" ", "T", "  "]) + chance.choice(["2", "02", "23", "24", ""])
    for bound in ("59", "60"):
        if chance.random() < 0.9:
            text += ":" + chance.choice(["5", "05", "30", bound])
    text += chance.choice(["", "", ".", ".1", ".123456", ".1234567", "..1"])
    return text + (chance.choice(["", " "]) + chance.choice(ZONES) if chance.random() < 0.6 else "")


@pytest.mark.nightly
@pytest.mark.spark
@rule("pipeline-7")
@pytest.mark.parametrize(
    ("kind", "one"),
    [
        *((kind, spelled) for kind in ("int", "long", "float", "double", "boolean")),
        *((kind, spelled) for kind in ("decimal(10,2)", "decimal(38,10)", "decimal(5,0)")),
        ("date", day),
        ("timestamp", moment),
    ],
)
def test_cells_that_are_taken_are_the_values_that_spark_reads(
    spark: SparkSession, kind: str, one: Callable[[Chance], str]
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    chance = Chance(2)
    cells = [cell for cell in (one(chance).strip() for _ in range(ROWS)) if cell]
    read = F.from_csv("cell", f"x {kind}, _bad string", CSV | {"sep": "|"})
    written = F.to_json(F.struct(read.getField("x").alias("x")), TIMES)
    rows = spark.createDataFrame([(cell,) for cell in cells], "cell string").coalesce(1)
    found = rows.select(F.when(read.getField("_bad").isNull(), written)).collect()
    expected = [text for (text,) in found]
    values, _ = values_of(kind, pa.array(cells, pa.string()))
    texts = objects_of([Field("x", kind)], [values]).to_pylist()
    is_there = values.is_valid().to_pylist()
    taken = [
        (cell, theirs, ours)
        for cell, theirs, ours, there in zip(cells, expected, texts, is_there, strict=True)
        if there and not BEYOND_JSON.search(ours)
    ]
    assert [each for each in taken if each[1] != each[2]] == []
    assert len(taken) > ROWS // 50


@pytest.mark.nightly
@pytest.mark.spark
@rule("pipeline-7")
@pytest.mark.parametrize("delimiter", [",", ";", "\t", " ", "|", "§"])
@pytest.mark.parametrize("in_order", [True, False])
def test_lines_that_are_taken_are_the_rows_that_spark_reads(
    spark: SparkSession, delimiter: str, in_order: bool
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    chance = Chance(3)
    good = ["a", "1.5", '"a"', f'"a{delimiter}b"', '"a""b"', '""', "é", "", '"1"', '""""']
    odd = ['"', '"', '"', "a", " ", "\t", delimiter, "1", "\x01", "é", ""]

    def cell() -> str:
        return (
            chance.choice(good) if in_order else "".join(chance.choices(odd, k=chance.randrange(8)))
        )

    lines = [
        delimiter.join(cell() for _ in range(chance.choice([1, 2, 2, 2, 3]))) for _ in range(ROWS)
    ]
    lines = [f"\ufeff{line}" if chance.random() < 0.02 else line for line in lines if line.strip()]
    read = F.from_csv("line", "s string, p double, _bad string", CSV | {"sep": delimiter})
    rows = spark.createDataFrame([(line,) for line in lines], "line string").coalesce(1)
    written = F.to_json(F.struct(read.getField("s").alias("s"), read.getField("p").alias("p")))
    found = rows.select(F.when(read.getField("_bad").isNull(), written)).collect()
    block_format = BlockFormat("csv", (Field("s", "string"), Field("p", "double")), delimiter)
    given = [pa.array([line.encode()], pa.binary()) for line in lines]
    if in_order:
        given = [pa.array([line.encode() for line in lines], pa.binary())]
    ours = [
        body.decode() if refused is None else None
        for _, bodies, reasons in csv_rows(given, block_format, "", has_header=False)
        for body, refused in zip(bodies.to_pylist(), reasons.to_pylist(), strict=True)
    ]
    pairs = list(zip(lines, [text for (text,) in found], ours, strict=True))
    if not in_order:
        pairs = [each for each in pairs if each[2] is not None]
    assert [each for each in pairs if each[1] != each[2]] == []
    assert len(pairs) > ROWS // 50
