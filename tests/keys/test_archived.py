"""The names of an archive's files."""

from __future__ import annotations

import pytest

from tidegate.keys.archived import Part, after, reach, topic_folder

MORNING_MS = 1_795_000_000_000


def part(first: int, last: int, epoch: str = "e1", stamp_ms: int = MORNING_MS) -> Part:
    return Part(stamp_ms + first, epoch, first, last)


def test_a_name_says_what_is_in_the_file() -> None:
    one = Part(MORNING_MS, "a7Z", 12, 345)
    assert one.name == ("part-1795000000000-a7Z-0000000000000000012-0000000000000000345.parquet")
    assert Part.of(one.name) == one
    assert one.day == MORNING_MS // 86_400_000
    assert topic_folder("ticks.1s") == "topic=ticks.1s"


@pytest.mark.parametrize(
    "name",
    ["", "part-1.parquet", "_lock", ".part-", "x" + part(1, 2).name, part(1, 2).name + ".crc"],
)
def test_other_names_are_no_parts(name: str) -> None:
    assert Part.of(name) is None


def test_names_stand_in_the_order_of_publication() -> None:
    parts = [part(1, 9), part(10, 99), part(100, 100), part(1, 5, "a0", MORNING_MS + 1_000)]
    assert sorted(parts, key=lambda each: each.name) == sorted(parts) == parts


def test_what_reaches_back_has_no_hole() -> None:
    parts = [part(1, 9), part(20, 29), part(30, 30), part(31, 40, "e2")]
    assert reach(parts, "e1") == (20, 30)
    assert reach(parts, "e2") == (31, 40)
    assert reach(parts, "e3") is None


def test_what_follows_a_position() -> None:
    parts = [part(1, 9), part(10, 19), part(20, 29), part(1, 99, "e2")]
    assert after(parts, "e1", 9) == parts[1:3]
    assert after(parts, "e1", 12) == parts[1:3]
    assert after(parts, "e1", 29) == []
