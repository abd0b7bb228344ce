"""A plan as a picture: how much each interval saves, a line for each key and pace.

The picture is a list of shapes, told once, and written as SVG by hand or as PNG by Pillow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

from tidegate.pipeline.columns.intervals import MILLISECOND_NS
from tidegate.pipeline.planner.planning import Choice, Plan

WIDTH, HEIGHT = 860, 420
LEFT, TOP, RIGHT, BOTTOM = 70, 50, 620, 360
LEGEND_LEFT, LEGEND_STEP = 640, 34
TEXT_SIZE, TITLE_SIZE = 13, 17
SCALE = 2  # pixels of the PNG a unit
INK, FAINT, PAPER = "#1f2933", "#d5dbe1", "#ffffff"
# Okabe and Ito's colours, which people of every colour vision tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
PILLOW_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points."""

    points: tuple[Point, ...]
    colour: str
    width: float = 1


@dataclass(frozen=True, slots=True)
class Dot:
    """A filled circle, or a ring."""

    at: Point
    radius: float
    colour: str
    is_ring: bool = False


@dataclass(frozen=True, slots=True)
class Words:
    """A text whose `anchor` (start, middle, end) stands at a point, on its base line."""

    at: Point
    text: str
    anchor: str = "start"
    size: int = TEXT_SIZE
    colour: str = INK


Shape = Line | Dot | Words


def write_chart(plan: Plan, path: Path) -> None:
    """Write the picture of a plan, as `.svg` or `.png` by the file's name.

    Raises:
        OSError: the file cannot be written.
    """
    drawn = shapes(plan)
    if path.suffix.lower() == ".svg":
        path.write_text(svg(drawn), encoding="utf-8")
    else:
        path.write_bytes(png(drawn))


def shapes(plan: Plan) -> list[Shape]:
    """The picture: saving in percent over the interval, on a logarithmic axis."""
    place = _places(plan.choices)
    drawn: list[Shape] = [
        Words((LEFT, 28), "Messages saved by conflation", size=TITLE_SIZE),
        *_grid(plan.choices, place),
    ]
    best = plan.recommended()
    for number, (_, found) in enumerate(groupby(plan.choices, lambda one: one.group)):
        group = sorted(found, key=lambda one: one.interval.interval_ns)
        colour = COLOURS[number % len(COLOURS)]
        points = tuple(place(one) for one in group)
        drawn += [Line(points, colour, 2), *(Dot(point, 3.5, colour) for point in points)]
        drawn += [Dot(place(one), 8, colour, is_ring=True) for one in group if one in best]
        drawn += _legend(number, colour, next(one for one in group if one in best))
    return drawn


def svg(drawn: list[Shape]) -> str:
    """Shapes as an SVG document."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>\n'
        + "".join(f"{_element(shape)}\n" for shape in drawn)
        + "</svg>\n"
    )


def png(drawn: list[Shape]) -> bytes:
    """Shapes as the bytes of a PNG."""
    from io import BytesIO

    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), PAPER)
    draw = ImageDraw.Draw(image)
    for shape in drawn:
        match shape:
            case Line(points, colour, width):
                scaled = [(x * SCALE, y * SCALE) for x, y in points]
                draw.line(scaled, fill=colour, width=round(width * SCALE), joint="curve")
            case Dot((x, y), radius, colour, is_ring):
                at = (x * SCALE, y * SCALE)
                fill, width = (None, 2 * SCALE) if is_ring else (colour, 0)
                draw.circle(at, radius * SCALE, fill=fill, outline=colour, width=width)
            case Words((x, y), text, anchor, size, colour):
                font = ImageFont.load_default(size * SCALE)
                at = (x * SCALE, y * SCALE)
                draw.text(at, text, fill=colour, font=font, anchor=PILLOW_ANCHORS[anchor])
    written = BytesIO()
    image.save(written, "PNG", optimize=True)
    return written.getvalue()


def _places(choices: list[Choice]) -> Callable[[Choice], Point]:
    logs = [math.log(one.interval.interval_ns) for one in choices]
    return partial(_place, low=min(logs), span=(max(logs) - min(logs)))


def _place(choice: Choice, low: float, span: float) -> Point:
    along = (math.log(choice.interval.interval_ns) - low) / span if span else 0.5
    return LEFT + along * (RIGHT - LEFT), BOTTOM - float(choice.saving) * (BOTTOM - TOP)


def _grid(choices: list[Choice], place: Callable[[Choice], Point]) -> list[Shape]:
    drawn: list[Shape] = []
    for percent in range(0, 101, 20):
        y = BOTTOM - percent / 100 * (BOTTOM - TOP)
        drawn += [
            Line(((LEFT, y), (RIGHT, y)), FAINT),
            Words((LEFT - 8, y + 4), f"{percent} %", "end"),
        ]
    intervals = {one.interval.interval_ns: one for one in choices}
    for one in intervals.values():
        x, _ = place(one)
        drawn += [
            Line(((x, BOTTOM), (x, BOTTOM + 5)), INK),
            Words((x, BOTTOM + 22), one.interval_text, "middle"),
        ]
    return [*drawn, Words(((LEFT + RIGHT) / 2, BOTTOM + 46), "interval", "middle")]


def _legend(number: int, colour: str, best: Choice) -> list[Shape]:
    y = TOP + 8 + number * LEGEND_STEP
    age_s = (best.sent.age_ms(99) or 0) * MILLISECOND_NS / 1e9
    saving = f"{float(best.saving):.0%}"
    advice = f"{best.interval.pace}, {best.interval_text}: {saving}, p99 {age_s:.3g} s"
    return [
        Line(((LEGEND_LEFT, y - 4), (LEGEND_LEFT + 18, y - 4)), colour, 3),
        Words((LEGEND_LEFT + 26, y), _shortened(best.key)),
        Words((LEGEND_LEFT + 26, y + 15), advice, size=TEXT_SIZE - 2),
    ]


def _shortened(text: str, length_max: int = 28) -> str:
    return text if len(text) <= length_max else text[: length_max - 3] + "..."


def _element(shape: Shape) -> str:
    match shape:
        case Line(points, colour, width):
            along = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            return (
                f'<polyline points="{along}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
            )
        case Dot((x, y), radius, colour, is_ring):
            paint = f'fill="none" stroke="{colour}" stroke-width="2"'
            paint = paint if is_ring else f'fill="{colour}"'
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {paint}/>'
        case Words((x, y), text, anchor, size, colour):
            return (
                f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
                f'text-anchor="{anchor}">{escape(text)}</text>'
            )
