"""Dashboard and alerts speak of metrics that there are, and the operator's page of every alert."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from dev import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text("utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")
DASHBOARD = json.loads((ROOT / "deploy" / "grafana.json").read_text("utf-8"))
RULES: list[dict[str, Any]] = [
    rule
    for group in YAML(typ="safe").load(ROOT / "deploy" / "alerts.yml")["groups"]
    for rule in group["rules"]
]

FROM_PROMETHEUS = {"up"}
AGGREGATIONS = {"sum", "max", "min", "avg", "count"}
WORDS = {"and", "or", "unless", "bool", "on", "ignoring", "by", "without", "group_left", "offset"}


def samples() -> set[str]:
    """Every name that a sample may have, by the page."""
    found = set(FROM_PROMETHEUS)
    seen = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \|", PAGE, re.MULTILINE)
    for name, kind in seen:
        endings = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
        found |= {name + ending for ending in endings}
    return found


def metrics_in(expression: str) -> set[str]:
    """The names of metrics in an expression: words that are no label, function or keyword."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", re.sub(r'"[^"]*"', "", expression))
    bare = re.sub(r"\b(by|on|without|ignoring|group_left)\s*\([^)]*\)", " ", bare)
    words = re.findall(r"\b([a-zA-Z_]\w*)\b(?!\s*\()", bare)
    return set(words) - WORDS


def aggregation_of(expression: str, metric: str) -> list[str]:
    """Return what aggregates a metric's samples in an expression, for each place, innermost."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", expression)
    bare = re.sub(r"\b(\w+)\s+(?:by|without)\s*\([^)]*\)\s*\(", r"\1(", bare)
    found = []
    for place in re.finditer(rf"\b{metric}\b", bare):
        opened: list[str] = []
        for call in re.finditer(r"(\w*)\(|\)", bare[: place.start()]):
            if call[0] == ")":
                opened.pop()
            else:
                opened.append(call[1])
        found.append(next((it for it in reversed(opened) if it in AGGREGATIONS), ""))
    return found


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def labels_in(expression: str) -> set[str]:
    return set(re.findall(r"[{,](\w+)(?:=~|!=|=)", re.sub(r'"[^"]*"', '""', expression)))


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('up{job="x"} == 0', {"up"}),
        ("sum by (job, le) (rate(a_bucket[5m])) > 0.25 and b", {"a_bucket", "b"}),
        ('a / on (job) group_left () b{of="keys"}', {"a", "b"}),
        ("a offset 5m", {"a"}),
    ],
)
def test_metrics_are_found_in_expressions(expression: str, names: set[str]) -> None:
    assert metrics_in(expression) == names


@pytest.mark.parametrize(
    ("expression", "aggregation"),
    [
        ('sum(rate(a_total{job="x"}[5m]))', ["sum"]),
        ("sum(max by (topic) (rate(a_total[5m])))", ["max"]),
        ("topk(10, max by (topic) (a_total))", ["max"]),
        ("sum by (le) (b) / a_total", [""]),
        ("sum(a_total) / clamp_min(sum(b), 1) + min(a_total)", ["sum", "min"]),
    ],
)
def test_the_innermost_aggregation_is_found(expression: str, aggregation: list[str]) -> None:
    assert aggregation_of(expression, "a_total") == aggregation


def test_the_dashboard_adds_up_what_is_of_one_gateway_and_nothing_that_is_shared() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|[^|]*\| (gateway|shared) \|", PAGE, re.MULTILINE)
    kinds = {name: (kind, scope) for name, kind, scope in rows}
    assert len({scope for _, scope in kinds.values()}) == 2
    for panel in panels():
        for target in panel["targets"]:
            for name in metrics_in(target["expr"]):
                # What a gateway has at a time may also be shown as the greatest of one.
                kind, scope = kinds.get(re.sub("_bucket$", "", name), ("gauge", "gateway"))
                if scope == "shared":
                    expected = {"max"}
                elif kind == "gauge" or name.startswith("process_"):
                    continue
                else:
                    expected = {"sum"}
                assert set(aggregation_of(target["expr"], name)) == expected, panel["title"]


def test_an_alert_counts_what_is_shared_once_and_keeps_the_worker_of_the_rest() -> None:
    shared = set(re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\| shared \|", PAGE, re.MULTILINE))
    for rule in RULES:
        expression = rule["expr"]
        for name in metrics_in(expression):
            if name in shared:
                assert set(aggregation_of(expression, name)) == {"max"}, rule["alert"]
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            if "instance" in labels:
                assert "worker" in labels.split(", "), rule["alert"]


def test_every_panel_asks_for_metrics_that_there_are() -> None:
    for panel in panels():
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            names = metrics_in(target["expr"])
            assert names, panel["title"]
            assert names <= samples(), panel["title"]


def test_the_dashboard_shows_every_metric_of_gateway_and_pipeline() -> None:
    shown = {
        name
        for panel in panels()
        for target in panel["targets"]
        for name in metrics_in(target["expr"])
    }
    own = {
        re.sub("_(bucket|count|sum)$", "", name)
        for name in samples()
        if name.startswith("tidegate_")
    }
    assert own - {re.sub("_bucket$", "", name) for name in shown} == set()


def test_panels_do_not_lie_on_one_another() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_asks_for_metrics_that_there_are_and_is_explained(rule: dict[str, Any]) -> None:
    assert metrics_in(rule["expr"]) <= samples()
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"]["summary"].endswith(".")
    assert f"**{rule['alert']}**" in OPERATIONS


def test_no_alert_is_explained_that_there_is_not() -> None:
    named = re.findall(r"\*\*(Tidegate[A-Z]\w+)\*\*", OPERATIONS)
    assert sorted(named) == sorted(rule["alert"] for rule in RULES)


def test_labels_that_are_asked_for_exist() -> None:
    known = {"job", "instance", "worker", "le", "query"} | {
        label
        for labels in re.findall(r"^\| `\w+` \| \w+ \| ([^|]*) \|", PAGE, re.MULTILINE)
        for label in re.findall(r"`(\w+)`", labels)
    }
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    for expression in (*asked, *(rule["expr"] for rule in RULES)):
        assert labels_in(expression) <= known, expression
