"""docs/concepts.md has pictures of what the engine does, and a widget that conflates as it does."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.docs.pictures import FOLDER, PICTURES, PUBLISHED, SHOWN_MS, sent
from tests.docs.site import DOCS
from tests.support.deadlines import HANGS_S
from tests.support.outside import node_command

PLAY = """
import { readFileSync } from "node:fs";
const [, path, published, end, interval, pace] = process.argv;
const code = `data:text/javascript,${encodeURIComponent(readFileSync(path, "utf-8"))}`;
const { Conflation } = await import(code);
const words = JSON.parse(published);
const conflation = new Conflation(Number(interval), pace);
const rows = [];
const flush = (now) => rows.push(...conflation.advance(now).map(([, value]) => [now, value]));
for (let now = 0; now < Number(end); now += 10) {
  flush(now);
  if (words[now]) conflation.publish(now, words[now][0], words[now]);
  flush(now);
}
process.stdout.write(JSON.stringify(rows));
"""


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_the_engine_does(name: str) -> None:
    """If not: `python -m tests.docs.pictures`."""
    assert (FOLDER / f"{name}.svg").read_text("utf-8") == PICTURES[name]()


def test_every_picture_is_shown_with_words() -> None:
    page = (DOCS / "concepts.md").read_text("utf-8")
    assert [name for name in PICTURES if f"](pictures/{name}.svg)" not in page] == []
    assert "![](" not in page


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("interval", "pace"),
    [(0, "batch"), (1000, "batch"), (1000, "key"), (500, "key"), (2000, "batch")],
)
def test_the_widget_sends_what_the_engine_sends(interval: int, pace: str) -> None:
    play = [
        *node_command(),
        "--input-type=module",
        "-e",
        PLAY,
        str(DOCS / "_static" / "conflation.js"),
    ]
    given = [json.dumps(PUBLISHED), str(SHOWN_MS), str(interval), pace]
    played = subprocess.run([*play, *given], capture_output=True, text=True, timeout=HANGS_S)
    assert played.stderr == ""
    options = f"conflation={interval}ms,pace={pace}" if interval else "conflation=none"
    assert [tuple(row) for row in json.loads(played.stdout)] == sent(options)
