"""Sizes in bytes."""

from __future__ import annotations

import pytest

from tidegate.keys.errors import TextInvalid
from tidegate.keys.text.size import SIZE_MAX, parse_size, size_text


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0B", 0),
        ("1b", 1),
        ("500KB", 500_000),
        ("8MiB", 8 << 20),
        ("8mib", 8 << 20),
        ("2GB", 2 * 10**9),
    ],
)
def test_a_size_is_an_integer_and_a_unit(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", "8", "MiB", "8 MiB", " 8MiB", "8MiB\n", "-8MiB", "+8MiB", "8.0MiB", "1e3B", "8_0B", "8TiB",
     "8ib", "٨MiB", "\uff18MiB", "8M\u0131B", "9" * 20 + "B"],
)  # fmt: skip
def test_anything_else_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="an integer and a unit"):
        parse_size(text)


@pytest.mark.parametrize(
    "size_bytes", [0, 1, 1000, 1 << 10, 3 << 19, 1 << 20, 5 << 30, 5_050_505_005_000_000, SIZE_MAX]
)
def test_a_size_is_written_so_that_it_reads_back(size_bytes: int) -> None:
    assert parse_size(size_text(size_bytes)) == size_bytes


@pytest.mark.parametrize("text", ["9223372036854775808B", "9" * 15 + "GiB", "8589934592GiB"])
def test_a_size_stays_within_64_bits(text: str) -> None:
    with pytest.raises(TextInvalid, match="within 64 bits"):
        parse_size(text)


def test_a_size_is_written_with_its_largest_exact_unit() -> None:
    assert [size_text(n) for n in (1023, 1 << 10, 16 << 20, 1 << 30)] == [
        "1023B",
        "1KiB",
        "16MiB",
        "1GiB",
    ]


@pytest.mark.parametrize(("text", "position"), [("", 0), ("MiB", 0), ("8", 1), ("8 MiB", 1)])
def test_a_refusal_says_where_the_text_breaks(text: str, position: int) -> None:
    with pytest.raises(TextInvalid) as refused:
        parse_size(text, 10)
    assert refused.value.position == 10 + position
