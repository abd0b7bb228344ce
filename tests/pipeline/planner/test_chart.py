from __future__ import annotations

from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from tests.pipeline.planner.test_planning import choice
from tidegate.pipeline.columns.intervals import Pace
from tidegate.pipeline.planner.chart import (
    HEIGHT,
    SCALE,
    WIDTH,
    Dot,
    Line,
    Words,
    shapes,
    write_chart,
)
from tidegate.pipeline.planner.planning import Plan

PLAN = Plan([choice(10, 500), choice(100, 100), choice(100, 300, Pace.BATCH, key="/<b>")])


def test_a_line_for_each_group_and_a_ring_around_what_is_recommended() -> None:
    drawn = shapes(PLAN)
    lines = [shape for shape in drawn if isinstance(shape, Line) and shape.width == 2]
    rings = [shape for shape in drawn if isinstance(shape, Dot) and shape.is_ring]
    assert [len(line.points) for line in lines] == [2, 1]
    assert [ring.at for ring in rings] == [lines[0].points[1], lines[1].points[0]]
    (left, low), (right, high) = lines[0].points
    assert left < right
    assert low > high  # 50 percent stands below 90


def test_one_interval_stands_in_the_middle() -> None:
    drawn = shapes(Plan([choice(10, 500)]))
    dots = [shape for shape in drawn if isinstance(shape, Dot)]
    axis = next(shape for shape in drawn if isinstance(shape, Words) and shape.text == "interval")
    assert {dot.at[0] for dot in dots} == {axis.at[0]}


def test_svg_is_xml_that_shows_every_text(tmp_path: Path) -> None:
    write_chart(PLAN, tmp_path / "plan.svg")
    tree = ElementTree.parse(tmp_path / "plan.svg")
    texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Messages saved by conflation", "10ms", "100ms", "/a", "/<b>", "60 %"} <= set(texts)


def test_png_is_a_picture_of_the_same_size(tmp_path: Path) -> None:
    write_chart(PLAN, tmp_path / "plan.PNG")
    picture = Image.open(BytesIO((tmp_path / "plan.PNG").read_bytes()))
    assert (picture.format, picture.size) == ("PNG", (WIDTH * SCALE, HEIGHT * SCALE))
    assert len(picture.getcolors(1 << 16) or []) > 10


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none"):
        write_chart(PLAN, tmp_path / "none" / "plan.svg")
