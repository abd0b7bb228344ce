"""The metrics' page is written from the families; tests/docs compares it with docs/metrics.md."""

from __future__ import annotations

from tidegate.app.metrics.page import metrics_page


async def test_a_family_has_a_row_with_its_samples_name_its_labels_and_its_meaning() -> None:
    rows = (await metrics_page()).splitlines()
    assert (
        "| `tidegate_topic_dropped_total` | counter | `topic`, `reason` "
        "| Rows that still waited when their subscription ended, by the reason of its end. |"
    ) in rows
    assert any(row.startswith("| `tidegate_publish_seconds` | histogram | `le` |") for row in rows)
