"""Families are written as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.support.gateways import running_gateway
from tidegate.app.http.counters import Histogram
from tidegate.app.metrics.exposition import exposition
from tidegate.app.metrics.families import counter, counters, gauge, gauges, histogram


def test_a_family_has_the_prefix_its_kind_and_its_samples() -> None:
    seen = Histogram((0.5, 1.0))
    seen.note(0.7)
    made = [
        gauge("a", "A.", 1),
        counter("b", "B.", 2),
        gauges("c", "C.", "of", {"x": 3}),
        counters("d", "D.", "reason", {"Y": 4}),
        histogram("e_seconds", "E.", seen),
    ]
    told = [(f.name, f.type, [(s.name, s.labels, s.value) for s in f.samples]) for f in made]
    assert told == [
        ("tidegate_a", "gauge", [("tidegate_a", {}, 1)]),
        ("tidegate_b", "counter", [("tidegate_b_total", {}, 2)]),
        ("tidegate_c", "gauge", [("tidegate_c", {"of": "x"}, 3)]),
        ("tidegate_d", "counter", [("tidegate_d_total", {"reason": "Y"}, 4)]),
        (
            "tidegate_e_seconds",
            "histogram",
            [
                ("tidegate_e_seconds_bucket", {"le": "0.5"}, 0),
                ("tidegate_e_seconds_bucket", {"le": "1.0"}, 1),
                ("tidegate_e_seconds_bucket", {"le": "+Inf"}, 1),
                ("tidegate_e_seconds_count", {}, 1),
                ("tidegate_e_seconds_sum", {}, 0.7),
            ],
        ),
    ]


async def test_every_family_has_a_name_of_its_own_and_a_meaning() -> None:
    async with running_gateway() as running:
        text = (await exposition(running.gateway, running.server.figures)).decode()
    found = list(text_string_to_metric_families(text))
    assert len({family.name for family in found}) == len(found)
    assert all(family.documentation for family in found)
