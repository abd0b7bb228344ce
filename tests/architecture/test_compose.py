"""The compose file and the Dockerfile, as far as they can be checked without a container engine."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator
from ruamel.yaml import YAML

from dev import ROOT
from tests.support.rules import rule
from tidegate import __version__
from tidegate.pipeline.definitions.stream import read_definitions

COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "Dockerfile"
SERVICES = {"gateway", "redis", "spark-master", "spark-worker", "topics", "pipeline"}
TARGETS = {
    "gateway": "tidegate",
    "spark": "tidegate-spark",
}  # stages, and the names of their images
ONE_SHOT = {"topics"}  # it exits when the topics exist, so it has no health check


@cache
def compose() -> dict[str, Any]:
    return YAML(typ="safe").load(COMPOSE)  # type: ignore[no-any-return]  # YAML is untyped


def stages() -> dict[str, str]:
    """Each stage of the Dockerfile, by its name: the image that it is built on, and its lines."""
    _, *parts = re.split(r"^FROM ", DOCKERFILE.read_text(), flags=re.MULTILINE)
    return {part.split()[2]: part for part in parts}


def exposed_ports(services: dict[str, Any]) -> list[str]:
    """Published ports that other machines can reach."""
    ports = [str(port) for service in services.values() for port in service.get("ports", [])]
    return [port for port in ports if not port.startswith("127.0.0.1:")]


def without_health_check(services: dict[str, Any]) -> list[str]:
    """Services without a health check that runs something."""
    return [name for name, service in services.items() if "test" not in service["healthcheck"]]


def unpinned_images(names: list[str]) -> list[str]:
    """Images whose tag does not name a version."""
    return [name for name in names if not re.search(r":.*\d", name) or name.endswith(":latest")]


def test_the_compose_file_fits_the_published_schema() -> None:
    package = find_spec("check_jsonschema")  # importing it takes longer
    assert package is not None
    assert package.origin is not None
    schema = Path(package.origin).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    validator = Draft202012Validator(json.loads(schema.read_text("utf-8")))
    assert [error.message for error in validator.iter_errors(compose())] == []


def test_the_services_are_the_documented_ones() -> None:
    assert set(compose()["services"]) == SERVICES


def test_ports_are_published_on_loopback_only() -> None:
    assert exposed_ports(compose()["services"]) == []


def test_every_service_that_keeps_running_has_a_health_check() -> None:
    assert set(without_health_check(compose()["services"])) == ONE_SHOT


def test_the_gateway_uses_redis_and_waits_for_it() -> None:
    gateway = compose()["services"]["gateway"]
    assert gateway["environment"]["TIDEGATE_REDIS"] == "redis://redis:6379"
    assert gateway["depends_on"]["redis"]["condition"] == "service_healthy"


@rule("cluster-4")
def test_redis_persists_every_write() -> None:
    command = " ".join(compose()["services"]["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--appendfsync always" in command  # else its restart ends the pipeline (rule cluster-4)
    assert "--maxmemory-policy noeviction" in command


def test_images_are_pinned() -> None:
    built_from = {text.split()[0] for text in stages().values()} - set(stages())
    images = [service["image"] for service in compose()["services"].values()]
    assert unpinned_images([*built_from, *images]) == []


def test_the_images_are_of_this_version() -> None:
    images = [service["image"] for service in compose()["services"].values() if "build" in service]
    assert {image.rpartition(":")[2] for image in images} == {__version__}


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_an_unprivileged_user(target: str) -> None:
    users = re.findall(r"^USER (\S+)", stages()[target], re.MULTILINE)
    assert users[-1:] == ["10001:10001"]


def test_a_service_has_the_image_that_its_command_needs() -> None:
    for name, service in compose()["services"].items():
        if "build" in service:
            target = "spark" if {"spark-class", "pipeline"} & set(service["command"]) else "gateway"
            assert (name, service["build"]["target"]) == (name, target)
            assert service["image"].startswith(f"{TARGETS[target]}:")


def test_only_the_image_for_spark_has_java_and_spark() -> None:
    built = stages()
    assert [name for name, text in built.items() if "-jre-" in text] == ["spark"]
    assert [name for name, text in built.items() if "run.lock" in text] == ["spark-source"]
    assert built["gateway"].split()[0] == built["spark"].split()[0] == "system"
    assert "--from=source " in built["gateway"]
    assert list(built)[-1] == "gateway"  # what `docker build .` builds


def test_the_files_that_the_image_copies_exist_and_are_not_ignored() -> None:
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    names = {name.rstrip("/") for line in sources for name in line.split()}
    taken = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert names == taken
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_pipeline_of_the_compose_file_is_a_valid_one(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(compose()["configs"]["pipeline"]["content"])
    (stream,) = read_definitions(file)
    watched = " ".join(compose()["services"]["pipeline"]["healthcheck"]["test"])
    assert f"/v1/topics/{stream.sink.topic}'" in watched
    topics = compose()["services"]["topics"]["command"][-1]
    assert f"/v1/topics/{stream.source.topic}" in topics
    compile(topics, "topics", "exec")


def test_the_health_check_of_the_gateway_is_that_of_its_image() -> None:
    test = ["python", "/opt/tidegate/ready.py"]
    assert compose()["services"]["gateway"]["healthcheck"]["test"] == ["CMD", *test]
    assert f"CMD {json.dumps(test)}" in stages()["gateway"]
    assert "COPY deploy/ready.py /opt/tidegate/ready.py" in stages()["gateway"]


@pytest.mark.parametrize("name", ["spark-master", "pipeline"])
def test_a_health_check_is_a_program(name: str) -> None:
    shell, program, flag, text = compose()["services"][name]["healthcheck"]["test"]
    assert (shell, program, flag) == ("CMD", "python", "-c")
    compile(text, name, "exec")
