"""docs/pipeline.md names every metric of a running pipeline, with its type and meaning."""

from __future__ import annotations

import re

from dev import ROOT
from tidegate.pipeline.operations.metrics import FIGURES, PREFIX

PAGE = (ROOT / "docs" / "pipeline.md").read_text("utf-8")


def test_the_page_has_the_metrics_and_no_other() -> None:
    rows = re.findall(r"^\| `(tidegate_pipeline_\w+)` \| (\w+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [
        (
            PREFIX + figure.name + ("_total" if figure.rises else ""),
            "counter" if figure.rises else "gauge",
            figure.meaning,
        )
        for figure in FIGURES
    ]
