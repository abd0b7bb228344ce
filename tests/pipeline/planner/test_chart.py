"""The picture of a plan: what it shows, as SVG and as PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from PIL import Image

from tests.pipeline.planner.test_choices import choice
from tidegate.pipeline.intervals import Pace
from tidegate.pipeline.planner.chart import INCHES, PIXELS_PER_INCH, figure, write_chart
from tidegate.pipeline.planner.choices import Plan

PLAN = Plan([choice(10, 500), choice(100, 100), choice(100, 300, Pace.BATCH, key="/<b>$x$")])
MS_NS = 1_000_000


def test_a_line_for_each_group_and_a_ring_around_what_is_recommended() -> None:
    [axes] = figure(PLAN).axes
    points = [tuple(line.get_xydata().T.tolist()) for line in cast(Any, axes.lines)]
    of_key, its_ring, of_batch, ring = points
    assert of_key == ([10 * MS_NS, 100 * MS_NS], [50.0, 90.0])
    assert its_ring == ([100 * MS_NS], [90.0])
    assert of_batch == ring == ([100 * MS_NS], [70.0])
    assert [line.get_fillstyle() for line in axes.lines] == ["full", "none"] * 2
    assert len({line.get_color() for line in axes.lines}) == 2


def test_intervals_are_written_as_they_were_asked_for() -> None:
    [axes] = figure(PLAN).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10ms", "100ms"]
    assert axes.get_xscale() == "log"


def test_one_interval_is_a_chart_too(tmp_path: Path) -> None:
    write_chart(Plan([choice(10, 500)]), tmp_path / "one.svg")
    assert (tmp_path / "one.svg").stat().st_size


def test_svg_is_xml_that_shows_every_text_and_is_equal_for_equal_plans(tmp_path: Path) -> None:
    for name in ("plan.svg", "again.svg"):
        write_chart(PLAN, tmp_path / name)
    tree = ElementTree.parse(tmp_path / "plan.svg")
    texts = {element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Messages saved by conflation", "10ms", "100ms", "/a", "/<b>$x$", "60 %"} <= texts
    assert (tmp_path / "plan.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()


def test_svg_fetches_nothing(tmp_path: Path) -> None:
    write_chart(PLAN, tmp_path / "plan.svg")
    tree = ElementTree.parse(tmp_path / "plan.svg")
    links = [
        value
        for element in tree.iter()
        for name, value in element.attrib.items()
        if name.endswith("href")
    ]
    assert all(link.startswith("#") for link in links)


def test_png_is_a_picture_of_the_same_size(tmp_path: Path) -> None:
    write_chart(PLAN, tmp_path / "plan.PNG")
    with Image.open(tmp_path / "plan.PNG") as picture:
        size = tuple(round(inches * PIXELS_PER_INCH) for inches in INCHES)
        assert (picture.format, picture.size) == ("PNG", size)
        assert len(picture.getcolors(1 << 16) or []) > 10


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none"):
        write_chart(PLAN, tmp_path / "none" / "plan.svg")
