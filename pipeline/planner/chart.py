"""A plan as a picture: the messages that each interval saves, a line for each key and pace."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.pipeline.intervals import MILLISECOND_NS
from tidegate.pipeline.planner.choices import Choice, Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INCHES = (10.0, 4.8)
PIXELS_PER_INCH = 160
INK, FAINT = "#1f2933", "#d5dbe1"
# Okabe and Ito's colors, which people of every color vision tell apart.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STYLE: dict[Any, object] = {
    # Text stays text: a reader can search it, and the file needs no glyphs.
    "svg.fonttype": "none",
    # Ids of an SVG are hashes; with a fixed salt equal plans make equal files.
    "svg.hashsalt": "tidegate",
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    # A key may have a dollar sign, which would begin a formula.
    "text.parse_math": False,
}


def write_chart(plan: Plan, path: Path) -> None:
    """Write the picture of a plan, as `.svg` or `.png` by the file's name.

    The paper is white in both, so the lines are readable on light and dark pages.

    Raises:
        OSError: the file cannot be written.
    """
    import matplotlib as mpl  # only here: the command line and the table do without it

    kind = path.suffix.lower()[1:]
    with mpl.rc_context(STYLE):
        metadata = {"Date": None} if kind == "svg" else None
        figure(plan).savefig(path, format=kind, dpi=PIXELS_PER_INCH, metadata=metadata)


def figure(plan: Plan) -> Figure:
    """Return the chart: saving in percent over the interval, on a logarithmic axis.

    A ring marks the recommended interval of each line.
    """
    # Not pyplot: that would choose a window system and keep every figure.
    from matplotlib.figure import Figure

    made = Figure(INCHES, layout="constrained")
    axes = made.add_subplot(xscale="log", ylim=(0, 100), xlabel="interval", ylabel="saved")
    axes.set_title("Messages saved by conflation", loc="left")
    best = plan.recommended()
    for number, (_, found) in enumerate(groupby(plan.choices, lambda one: one.group)):
        group = sorted(found, key=lambda one: one.interval.interval_ns)
        color = COLORS[number % len(COLORS)]
        ringed = next(one for one in group if one in best)
        axes.plot(*_points(group), "o-", color=color, label=_label(ringed), clip_on=False)
        axes.plot(
            *_points([ringed]), "o", color=color, fillstyle="none", markersize=13, clip_on=False
        )
    ticks = {one.interval.interval_ns: one.interval_text for one in plan.choices}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:.0f} %")
    axes.grid(axis="y", color=FAINT)
    axes.spines[["top", "right"]].set_visible(False)
    made.legend(loc="outside right upper", frameon=False)
    return made


def _points(choices: list[Choice]) -> tuple[list[int], list[float]]:
    intervals = [one.interval.interval_ns for one in choices]
    return intervals, [100 * float(one.saving) for one in choices]


def _label(best: Choice) -> str:
    """Return the key, and what its recommended interval saves and costs."""
    age_s = (best.sent.age_ms(99) or 0) * MILLISECOND_NS / 1e9
    advice = f"{best.interval.pace}, {best.interval_text}: {float(best.saving):.0%}"
    return f"{_shortened(best.key)}\n{advice}, p99 {age_s:.3g} s"


def _shortened(text: str, length_max: int = 28) -> str:
    return text if len(text) <= length_max else text[: length_max - 3] + "..."
