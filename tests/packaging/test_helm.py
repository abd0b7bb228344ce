"""The chart of `deploy/helm` gives what Kubernetes and the gateway accept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dev import ROOT
from tests.support.commands import call, parsed
from tests.support.external.helm import (
    ChartFailed,
    documents,
    has_helm,
    helm,
    names_used,
    render,
    values_of,
)
from tidegate.app.settings.settings import Settings

CHART = ROOT / "deploy" / "helm" / "tidegate"
TOPICS = {"prices.toml": '[topics.prices]\nkey = ["/symbol"]\ndescription = "a < b & c"\n'}
SQLITE: dict[str, Any] = {"auth": {"insecure": True}, "topics": TOPICS}
SHARED: dict[str, Any] = {
    "replicas": 3,
    "redis": {"existingSecret": "bus"},
    "auth": {"existingSecret": "access", "policy": True},
    "tls": {"existingSecret": "tls"},
    "allowedHosts": ["ticks.example", "desk.example"],
    "persistence": {"storageClassName": "fast"},
}
SCALED = {**SHARED, "autoscaling": {"enabled": True}}
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")
[SHOWN] = documents("# values" + OPERATIONS.split("```yaml\n# values")[1].split("```")[0])
STORIES = {"sqlite": SQLITE, "shared": SHARED, "scaled": SCALED, "shown": SHOWN, "default": {}}
each_story = pytest.mark.parametrize("changes", STORIES.values(), ids=STORIES)


def by_kind(changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{found['kind']}/{found['metadata']['name']}": found for found in render(CHART, changes)
    }


def gateway(changes: Mapping[str, Any]) -> dict[str, Any]:
    pod = by_kind(changes)["StatefulSet/gw"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    found: dict[str, Any] = container
    return found


def environment(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {it["name"]: it.get("value", it.get("valueFrom")) for it in gateway(changes)["env"]}


@each_story
def test_helm_gives_the_same_where_it_is_installed(
    tmp_path: Path, changes: Mapping[str, Any]
) -> None:
    def sorted_by_name(found: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(it, sort_keys=True) for it in found)

    if has_helm():
        rendered = helm(CHART, changes, tmp_path)
        assert sorted_by_name(rendered) == sorted_by_name(render(CHART, changes))


def leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, found in value.items():
            yield from leaves(found, f"{path}.{name}" if path else name)
    else:
        yield path


def test_every_value_is_used_and_every_used_one_is_there() -> None:
    used = names_used(CHART)
    there = set(leaves(values_of(CHART, {})))
    assert [name for name in used if not any(f"{it}.".startswith(f"{name}.") for it in there)] == []
    assert [it for it in there if not any(f"{it}.".startswith(f"{name}.") for name in used)] == []


@each_story
def test_a_gateway_starts_with_what_there_is(changes: Mapping[str, Any]) -> None:
    program, *words = gateway(changes)["command"]
    assert program == "tidegate"
    assert parsed(*words).command.callback
    names = {name.removeprefix("TIDEGATE_").lower() for name in environment(changes)}
    assert names - {"data"} <= set(Settings.model_fields)


def test_the_settings_and_topics_of_the_chart_are_valid(tmp_path: Path) -> None:
    found = by_kind(SQLITE)
    for name in ("settings", "topics"):
        (tmp_path / name).mkdir()
        for file, text in found[f"ConfigMap/gw-{name}"]["data"].items():
            (tmp_path / name / file).write_text(text)
    assert (tmp_path / "topics" / "prices.toml").read_text() == TOPICS["prices.toml"]
    config = str(tmp_path / "settings" / "tidegate.toml")
    given = environment(SQLITE)
    variables: dict[str, Any] = {name: it for name, it in given.items() if isinstance(it, str)}
    words = ("serve", "--check", "--config", config, "--topics", str(tmp_path / "topics"))
    ended = call(*words, **variables)
    assert (ended.code, ended.err) == (0, "")
    (tmp_path / "topics" / "prices.toml").unlink()
    ended = call(*words, **variables)
    assert (ended.code, ended.err) == (0, ""), "no topics"


def test_one_gateway_keeps_its_store_on_a_volume() -> None:
    found = by_kind(SQLITE)
    assert set(found) == {
        "ConfigMap/gw-settings",
        "ConfigMap/gw-topics",
        "Service/gw",
        "StatefulSet/gw",
    }
    [claim] = found["StatefulSet/gw"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "10Gi"
    [mount] = [
        it for it in gateway(SQLITE)["volumeMounts"] if it["name"] == claim["metadata"]["name"]
    ]
    assert environment(SQLITE)["TIDEGATE_DATA"].startswith(mount["mountPath"] + "/")
    assert "TIDEGATE_REDIS" not in environment(SQLITE)


def test_several_gateways_share_a_redis_and_stop_one_after_the_other() -> None:
    found = by_kind(SHARED)
    assert found["StatefulSet/gw"]["spec"]["replicas"] == 3
    assert "volumeClaimTemplates" not in found["StatefulSet/gw"]["spec"]
    assert environment(SHARED)["TIDEGATE_REDIS"] == {"secretKeyRef": {"name": "bus", "key": "url"}}
    assert found["PodDisruptionBudget/gw"]["spec"]["maxUnavailable"] == 1
    hosts = "gw,gw.desk,gw.desk.svc,ticks.example,desk.example"
    assert environment(SHARED)["TIDEGATE_ALLOWED_HOSTS"] == hosts
    assert environment(SHARED)["TIDEGATE_INSECURE"] == "false"
    scaled = by_kind(SCALED)
    assert "replicas" not in scaled["StatefulSet/gw"]["spec"], "the autoscaler's"
    target = scaled["HorizontalPodAutoscaler/gw"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("StatefulSet", "gw")
    assert "PodDisruptionBudget/gw" in scaled


@pytest.mark.parametrize("changes", [{"replicas": 2}, {"autoscaling": {"enabled": True}}])
def test_several_gateways_without_a_redis_are_refused(
    tmp_path: Path, changes: Mapping[str, Any]
) -> None:
    reason = r"more than one gateway needs redis\.existingSecret"
    with pytest.raises(ChartFailed, match=reason):
        render(CHART, changes)
    if has_helm():
        with pytest.raises(ChartFailed, match=reason):
            helm(CHART, changes, tmp_path)


@each_story
def test_probes_ask_what_the_gateway_answers(changes: Mapping[str, Any]) -> None:
    container = gateway(changes)
    asked = {
        name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
    }
    paths = {name: it["path"] for name, it in asked.items()}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    speaks_tls = "TIDEGATE_TLS_CERT" in environment(changes)
    assert {it.get("scheme", "HTTP") for it in asked.values()} == {
        "HTTPS" if speaks_tls else "HTTP"
    }
    assert {it["port"] for it in asked.values()} == {"http"}
    [port] = container["ports"]
    assert str(port["containerPort"]) == environment(changes)["TIDEGATE_PORT"]


@each_story
def test_a_pod_leaves_its_service_before_the_gateway_stops(changes: Mapping[str, Any]) -> None:
    program, seconds = gateway(changes)["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    pod = by_kind(changes)["StatefulSet/gw"]["spec"]["template"]["spec"]
    probe = gateway(changes)["readinessProbe"]
    assert int(seconds) >= probe["periodSeconds"] * probe["failureThreshold"]
    assert "allow ten before a `SIGKILL`" in " ".join(OPERATIONS.split())
    assert pod["terminationGracePeriodSeconds"] - int(seconds) >= 10


@each_story
def test_a_gateway_has_no_privileges_and_mounts_what_it_names(changes: Mapping[str, Any]) -> None:
    pod = by_kind(changes)["StatefulSet/gw"]["spec"]["template"]["spec"]
    container = gateway(changes)
    assert pod["enableServiceLinks"] is False, "else a Service tidegate sets TIDEGATE_PORT"
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    claims = by_kind(changes)["StatefulSet/gw"]["spec"].get("volumeClaimTemplates", [])
    volumes = {it["name"] for it in pod["volumes"]} | {it["metadata"]["name"] for it in claims}
    assert {it["name"] for it in container["volumeMounts"]} == volumes


@each_story
def test_objects_find_one_another(changes: Mapping[str, Any]) -> None:
    found = by_kind(changes)
    workload = found["StatefulSet/gw"]["spec"]
    labels = workload["template"]["metadata"]["labels"]
    assert workload["selector"]["matchLabels"] == labels
    assert found["Service/gw"]["spec"]["selector"] == labels
    assert workload["serviceName"] == "gw"
    named = {
        it["configMap"]["name"]
        for it in workload["template"]["spec"]["volumes"]
        if "configMap" in it
    }
    assert {f"ConfigMap/{name}" for name in named} <= set(found)


def test_other_settings_start_the_gateways_anew() -> None:
    def notes(changes: Mapping[str, Any]) -> dict[str, Any]:
        template = by_kind(changes)["StatefulSet/gw"]["spec"]["template"]
        found: dict[str, Any] = template["metadata"]["annotations"]
        return found

    one, other = notes(SQLITE), notes({**SQLITE, "settings": 'log_level = "debug"\n'})
    assert one["tidegate/settings"] != other["tidegate/settings"]
    assert one["tidegate/topics"] == other["tidegate/topics"]
    assert one["prometheus.io/port"] == "8080"


def test_the_chart_has_the_version_of_the_product() -> None:
    [chart] = documents((CHART / "Chart.yaml").read_text())
    version = values_of(CHART, {})["image"]["tag"]
    assert chart["appVersion"] == version
    assert f'__version__ = "{version}"' in (ROOT / "tidegate" / "__init__.py").read_text()
