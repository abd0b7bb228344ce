"""The pictures of docs/concepts.md, drawn from what the engine does.

`python -m tests.docs.pictures` writes them into docs/pictures. Each follows the reader's light or
dark scheme by itself, wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable

from dev import ROOT
from tests.support.manual_driver import ManualDriver, batches, tokens
from tidegate.keys.text.duration import MILLISECOND

FOLDER = ROOT / "docs" / "pictures"
STYLE = """
  .panel { fill: #ffffff; stroke: #d0d7de; } .box { fill: #f6f8fa; stroke: #57606a; }
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .small { font-size: 11px; fill: #57606a; }
  .mono { font-family: ui-monospace, monospace; font-size: 12px; }
  .line { stroke: #8c959f; fill: none; } .grid { stroke: #d8dee4; stroke-dasharray: 2 4; }
  .a { fill: #0969da; } .b { fill: #bc4c00; } .c { fill: #1a7f37; }
  .on { fill: #fff; font-size: 10px; }
  .sa { stroke: #bc4c00; } .sb { stroke: #0969da; } .thick { stroke-width: 2.5; fill: none; }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #161b22; stroke: #30363d; } .box { fill: #21262d; stroke: #8b949e; }
    text { fill: #e6edf3; } .small { fill: #9198a1; }
    .line { stroke: #6e7681; } .grid { stroke: #30363d; }
    .a { fill: #4493f8; } .b { fill: #f0883e; } .c { fill: #3fb950; } .on { fill: #0d1117; }
    .sa { stroke: #f0883e; } .sb { stroke: #4493f8; }
  }
"""
# Time in ms of each message: three keys that differ in how often they change.
PUBLISHED = {
    100: "a1", 300: "b1", 400: "a2", 700: "a3", 1000: "a4", 1300: "c1", 1450: "a5", 1700: "b2",
    1900: "a6", 2300: "a7", 2500: "a8", 2900: "b3", 3000: "a9",
}  # fmt: skip
SHOWN_MS = 4_400
ROWS = [
    ("conflation=none", "every message"),
    ("conflation=1s", "one flush a second"),
    ("conflation=1s,pace=key", "a second for each key"),
    ("conflation=1s,edge=leading", "a quiet key at once"),
    ("conflation=2s", "one flush in two seconds"),
]


def drawing(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """Return a whole picture, on a panel of its own."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{title}</title><style>{STYLE}</style>",
        f'<rect class="panel" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="8"/>',
        *parts,
        "</svg>\n",
    ])  # fmt: skip


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{words}</text>'


def level_line(kind: str, x1: float, x2: float, y: float) -> str:
    return f'<line class="{kind}" x1="{x1:g}" x2="{x2:g}" y1="{y:g}" y2="{y:g}"/>'


def sent(options: str) -> list[tuple[int, str]]:
    """When the engine sends what, in ms, to a subscriber that always reads at once."""
    driver = ManualDriver()
    driver.topic()
    driver.subscribe(options)
    found: list[tuple[int, str]] = []
    for now in range(0, SHOWN_MS, 10):
        if word := PUBLISHED.get(now):
            driver.publish(word)
            driver.flush()
        for batch in batches(driver.take()):
            found += [(driver.now // MILLISECOND, row) for row in tokens(batch.frames).split()]
        driver.wait("10ms")
    return found


def dots(y: int, found: list[tuple[int, str]], left: int, scale: float) -> Iterable[str]:
    """A row of the timeline; what is sent at one moment stands on top of one another."""
    at_once: dict[int, int] = {}
    for now, word in found:
        step = at_once.get(now, 0)
        at_once[now] = step + 1
        x, level = left + now * scale, y - 19 * step
        yield f'<circle class="{word[0]}" cx="{x:.0f}" cy="{level}" r="9"/>'
        yield text(round(x), level + 4, word[1:], "on", "middle")


def intervals() -> str:
    left, scale, first, step = 210, 0.135, 66, 70
    parts = [text(16, 24, "Three keys: ")]
    for number, (key, rate) in enumerate(
        [("a", "changes often"), ("b", "sometimes"), ("c", "once")]
    ):
        place = 110 + 150 * number
        parts += [
            f'<circle class="{key}" cx="{place}" cy="20" r="8"/>',
            text(place + 14, 24, rate, "small"),
        ]
    bottom = first + step * len(ROWS)
    for second in range(5):
        x = left + second * 1000 * scale
        parts.append(f'<line class="grid" x1="{x:g}" x2="{x:g}" y1="44" y2="{bottom}"/>')
        parts.append(text(x, bottom + 16, f"{second} s", "small", "middle"))
    for number, (options, meaning) in enumerate(ROWS):
        y = first + step * number + 20
        parts += [text(16, y - 4, options, "mono"), text(16, y + 12, meaning, "small")]
        parts.append(level_line("line", left, left + SHOWN_MS * scale, y))
        parts += dots(y, sent(options), left, scale)
    return drawing(830, bottom + 30, "What the same messages become at five intervals", parts)


TIP = """<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"
 orient="auto"><path d="M0 0L8 4L0 8z" fill="#8c959f"/></marker></defs>"""
LANES = [(20, "100ms", ["trading screen"]), (98, "1s", ["dashboard"] * 2), (190, "5s", ["phone"])]


def flow() -> str:
    def box(x: int, y: int, width: int, *lines: str) -> list[str]:
        height = 18 + 17 * len(lines)
        shown = [f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>']
        kinds = ["", *["small"] * (len(lines) - 1)]
        return shown + [
            text(x + width / 2, y + 21 + 17 * n, line, kind, "middle")
            for n, (line, kind) in enumerate(zip(lines, kinds, strict=True))
        ]

    def arrow(x1: int, y1: int, x2: int, y2: int) -> str:
        half = (x1 + x2) // 2
        road = f"M{x1} {y1} C{half} {y1} {half} {y2} {x2} {y2}"
        return f'<path class="line" marker-end="url(#tip)" d="{road}"/>'

    parts = [
        TIP,
        *box(20, 40, 150, "publisher", "20,000 a second"),
        *box(20, 150, 150, "publisher", "when something changes"),
        *box(250, 82, 160, "topic", "the newest message", "of each key"),
        arrow(170, 66, 248, 105), arrow(170, 176, 248, 125),
    ]  # fmt: skip
    for y, interval, who in LANES:
        parts += box(470, y, 110, f"lane {interval}")
        parts.append(arrow(410, 116, 468, y + 17))
        for number, reader in enumerate(who):
            place = y + 42 * number
            parts += [*box(670, place, 140, reader), arrow(580, y + 17, 668, place + 17)]
    return drawing(830, 250, "Publishers, a topic, lanes and subscribers", parts)


def slow_reader() -> str:
    """Draw what waits for a reader that stands still, at 40 messages a second of 12 keys."""
    left, bottom, across, up = 70, 210, 70, 0.9
    waits: dict[str, list[tuple[float, int]]] = {"sa": [], "sb": []}
    pending: list[int] = []
    for step in range(401):
        now = step / 40
        pending.append(step % 12)
        if not 2 <= now < 6:
            # It catches up at 120 messages a second, and reads each at once when nothing waits.
            pending = pending[3:]
        waits["sa"].append((now, len(pending)))
        waits["sb"].append((now, len(set(pending))))
    parts = [level_line("line", left, left + 10 * across, bottom)]
    parts += [
        text(left + across * second, bottom + 18, f"{second} s", "small", "middle")
        for second in range(0, 11, 2)
    ]
    for level in (0, 50, 100, 150):
        y = bottom - up * level
        parts.append(text(left - 8, y + 4, str(level), "small", "end"))
        parts.append(level_line("grid", left, left + 10 * across, y))
    for kind, points in waits.items():
        road = " ".join(f"{left + x * across:.1f},{bottom - up * y:.1f}" for x, y in points)
        parts.append(f'<polyline class="thick {kind}" points="{road}"/>')
    title = "Waiting for a reader that stands still from 2 s to 6 s"
    parts.append(text(left + 6.2 * across, 60, "conflation=none: a queue of messages", "mono"))
    parts += [text(left + 8, bottom - 20, "interval: changed keys", "mono"), text(16, 24, title)]
    return drawing(830, 245, "What waits for a slow reader", parts)


PICTURES = {"flow": flow, "intervals": intervals, "slow-reader": slow_reader}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), "utf-8")
