"""Messages out of files, and files that are not what they say."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import sys
from pathlib import Path
from typing import IO

import pytest

from tidegate.app.cli.publish import Line, read_lines, share_read
from tidegate.app.cli.terminal import UsageInvalid

NDJSON = b'{"a":1}\n\n  {"a":2}  \r\n[3]'
NOISE = random.Random(7).randbytes(999)
LINES = [Line(1, b'{"a":1}'), Line(3, b'{"a":2}'), Line(4, b"[3]")]


def packed(content: bytes) -> bytes:
    """`content` as gzip without a time stamp: every process collects the same tests."""
    return gzip.compress(content, mtime=0)


def written(folder: Path, name: str, content: bytes) -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def test_ndjson_plain_and_packed(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path, "a.ndjson", NDJSON))) == LINES
    assert list(read_lines(written(tmp_path, "a.ndjson.gz", packed(NDJSON)))) == LINES


def test_csv_becomes_objects_with_numbers_as_they_are_spelt(tmp_path: Path) -> None:
    content = '\ufeffname,price,note\r\nIBM,1.50,"a ""b"", c"\r\n007,-1e3,\r\n\r\nä,+1,"x\ny"\r\n'
    for name, raw in (
        ("a.csv", content.encode()),
        ("a.CSV.gz", packed(content.encode())),
    ):
        lines = list(read_lines(written(tmp_path, name, raw)))
        assert next(line.text for line in lines if line) == (
            b'{"name":"IBM","price":1.50,"note":"a \\"b\\", c"}'
        )
        rows = [(line.number, json.loads(line.text)) for line in lines if line]
        assert rows[1] == (3, {"name": "007", "price": -1000.0})
        assert rows[2] == (6, {"name": "ä", "price": "+1", "note": "x\ny"})


def test_a_column_may_be_of_texts_and_an_exponent_elsewhere_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As keys, `12E4` and `120000` would be one record."""
    file = written(tmp_path, "a.csv", b"sku,n\n12E4,1\n120000,2E0\n1.10,3e0\n")
    assert [line.text for line in read_lines(file, texts=["sku"]) if line] == [
        b'{"sku":"12E4","n":1}',
        b'{"sku":"120000","n":2E0}',
        b'{"sku":"1.10","n":3e0}',
    ]
    noted = capsys.readouterr().err.splitlines()
    assert noted == ["2E0 of column n is a number; --text n keeps it as a text"]
    with pytest.raises(UsageInvalid, match="--text skus: the CSV has no column"):
        list(read_lines(file, texts=["skus"]))
    with pytest.raises(UsageInvalid, match="is none"):
        list(read_lines(written(tmp_path, "a.ndjson", NDJSON), texts=["sku"]))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        pytest.param("a.csv", b"a,a\n1,2\n", "first row", id="csv-header-twice"),
        pytest.param("a.csv", b"a,\n1,2\n", "first row", id="csv-header-unnamed"),
        pytest.param(
            "a.csv", b"a,b\n1\n", "line 2 of the CSV has 1 cells, its header 2", id="csv-short-row"
        ),
        pytest.param("a.csv", b'a\n"x\n', "not valid CSV", id="csv-open-quote"),
        pytest.param("a.csv", b"a\n\xff\n", "not UTF-8", id="csv-not-utf8"),
        pytest.param("a.gz", b"plain", "not a complete gzip file", id="gzip-not"),
        pytest.param("a.gz", packed(b"[1]\n" * 99)[:-9], "not a complete gzip file", id="gzip-cut"),
        pytest.param(
            "a.gz", packed(NOISE)[:40] + b"\0" * 50, "not a complete gzip file", id="gzip-damaged"
        ),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    with pytest.raises(UsageInvalid, match=said):
        list(read_lines(written(tmp_path, name, content)))


def test_a_cell_may_be_as_large_as_a_message(tmp_path: Path) -> None:
    """Python's own limit is 131,072 characters; the gateway says what is too large for it."""
    text = "x" * 200_000
    [line] = read_lines(written(tmp_path, "a.csv", f"a\n{text}\n".encode()))
    assert line is not None
    assert line.text == b'{"a":"%b"}' % text.encode()


@pytest.mark.parametrize("name", ["a.ndjson", "a.csv"])
@pytest.mark.parametrize("content", [b"", b"\n\r\n"], ids=["nothing", "blank-lines"])
def test_an_empty_file_is_no_message(tmp_path: Path, name: str, content: bytes) -> None:
    assert list(read_lines(written(tmp_path, name, content))) == []
    assert list(read_lines(written(tmp_path, f"{name}.gz", packed(content)))) == []


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageInvalid, match="No such file"):
        list(read_lines(str(tmp_path / "none")))
    with pytest.raises(UsageInvalid, match="directory"):
        list(read_lines(str(tmp_path)))


class Terminal:
    """Standard input of which one piece has arrived after the other."""

    def __init__(self, *pieces: bytes) -> None:
        self.buffer = self
        self._pieces = list(pieces)

    def read1(self, size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def test_standard_input_is_given_out_as_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(b"1\n2\n", b"3", b"3\n\n4"))
    given = [None if line is None else (line.number, line.text) for line in read_lines("-")]
    assert given == [(1, b"1"), (2, b"2"), None, None, (3, b"33"), None, (5, b"4")]


def test_empty_standard_input_is_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert list(read_lines("-")) == []


@pytest.mark.parametrize("name", ["a.ndjson", "a.ndjson.gz", "a.csv"])
def test_how_much_of_a_file_is_read_is_known(tmp_path: Path, name: str) -> None:
    # Hard to compress: since Python 3.12 a compressed file is read 128 KiB at a time.
    numbers = (number * 0x9E3779B97F4A7C15 % (1 << 64) for number in range(100_000))
    raw = b"n\n" + b"".join(b"%d\n" % number for number in numbers)
    opened: list[IO[bytes]] = []
    lines = read_lines(written(tmp_path, name, packed(raw) if "gz" in name else raw), opened)
    assert share_read(opened) is None
    shares = []
    for at, _ in enumerate(lines):
        if at % 20_000 == 10_000:
            shares.append(share_read(opened))
    assert shares == sorted(shares, key=lambda it: it or 0.0)
    assert 0.0 < (shares[0] or 0.0) < 0.5
    assert share_read(opened) == 1.0


def test_a_pipe_has_no_share() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert share_read([pipe]) is None
