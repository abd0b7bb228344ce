"""Durations and sizes in settings."""

import pytest

from app.units import Duration, parse_size, size_text


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
     "8ib", "٨MiB", "\uff18MiB", "8M\u0131B", "9" * 16 + "B"],
)  # fmt: skip
def test_anything_else_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="an integer and a unit"):
        parse_size(text)


@pytest.mark.parametrize("size_bytes", [0, 1, 1000, 1 << 10, 3 << 19, 1 << 20, 5 << 30])
def test_a_size_is_written_so_that_it_reads_back(size_bytes: int) -> None:
    assert parse_size(size_text(size_bytes)) == size_bytes


def test_a_size_is_written_with_its_largest_exact_unit() -> None:
    assert [size_text(n) for n in (1023, 1 << 10, 16 << 20, 1 << 30)] == [
        "1023B",
        "1KiB",
        "16MiB",
        "1GiB",
    ]


def test_a_duration_knows_its_units() -> None:
    duration = Duration.parse("1500ms")
    assert (duration.ns, duration.ms, duration.seconds) == (1_500_000_000, 1500, 1.5)
    assert str(duration) == "1500ms"
    assert Duration.parse("10s") < Duration.parse("1m")
