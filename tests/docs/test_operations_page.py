"""docs/operations.md names every event that the log has, and settings that there are."""

from __future__ import annotations

import re

from dev import ROOT
from tests.architecture.rules import modules
from tidegate.app.logs import UNNAMED
from tidegate.app.settings.settings import SETTINGS

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
EVENT_TABLE = PAGE.split("| event | level |")[1].split("\n\n")[0]
NAMED = re.compile(r"(?:extra=|figures = )(?:\w+\.)?(?:log_)?event\(\s*\"([a-z-]+)\"")


def test_every_event_of_the_log_has_its_row() -> None:
    rows = {
        name
        for cell in re.findall(r"^\| (`[^|]*`) \|", EVENT_TABLE, re.MULTILINE)
        for name in re.findall(r"`([a-z-]+)`", cell)
    }
    shown = {name for path in modules("app") for name in NAMED.findall(path.read_text("utf-8"))}
    assert shown | {UNNAMED} == rows


def test_settings_that_it_names_exist() -> None:
    words = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", PAGE))
    foreign = {
        "proxy_buffering",
        "duration_ms",
        "cpu_percent",
        "collection_ms",
        "rows_per_batch",
        "dead_letters",
    }
    assert words - foreign - set(SETTINGS) == set()
