from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.definitions.streams_file import GOOD, check_mistake, written
from tidegate.pipeline.definitions.external import FileFormat, FilesSource
from tidegate.pipeline.definitions.stream import read_definitions

PATH = 'path = "in/*.ndjson"'


@pytest.mark.parametrize(
    ("pattern", "content"),
    [
        ("in/*.ndjson", FileFormat.NDJSON),
        ("in", FileFormat.NDJSON),
        ("in/*.json.gz", FileFormat.NDJSON),
        ("in/*.csv", FileFormat.CSV),
        ("in/*.csv.gz", FileFormat.CSV),
        ("in/*.parquet", FileFormat.PARQUET),
    ],
)
def test_a_path_says_what_files_are_made_of(pattern: str, content: FileFormat) -> None:
    assert FileFormat.of_name(pattern) is content


def test_csv_has_columns_of_types(tmp_path: Path) -> None:
    table = 'path = "in/x", format = "csv", delimiter = "\\t", header = false'
    table += ', schema = {symbol = "string", price = "decimal(10,2)"}'
    _, second = read_definitions(written(tmp_path, GOOD.replace(PATH, table)))
    assert second.source == FilesSource(
        pattern=str(tmp_path / "in/x"),
        topic="raw",
        files_per_batch=3,
        format=FileFormat.CSV,
        schema=(("symbol", "string"), ("price", "decimal(10,2)")),
        delimiter="\t",
        has_header=False,
    )
    assert second.source.place == f"csv files {tmp_path}/in/x"
    assert FilesSource("in").place == "files in"


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ('path = " "', "from-files.source.path: expected a path or pattern"),
        (f'{PATH}, format = "xml"', "source.format: expected ndjson, csv or parquet"),
        (f'{PATH}, delimiter = ";"', "source.delimiter: only with files of csv"),
        (f'{PATH}, schema = {{a = "long"}}', "source.schema: only with files of csv or parquet"),
        ('path = "a.csv", delimiter = ", "', "source.delimiter: expected one character"),
        ('path = "a.csv", header = "no"', "source.header: expected true or false"),
        ('path = "a.csv", header = false', "source.schema: is missing, expected the columns of"),
        ('path = "a.csv", schema = "a LONG"', "source.schema: expected columns, such as"),
        (
            'path = "a.csv", schema = {a = "text"}',
            "source.schema.a: expected one of string, boolean",
        ),
        ('path = "a.parquet", header = true', "source.header: only with files of csv"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(tmp_path: Path, new: str, said: str) -> None:
    check_mistake(tmp_path, PATH, new, said)
