"""Containers run without privileges, and start what there is, with what it asks for.

Docker is not asked: what it would read is parsed, and compared with the code.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from dev import ROOT
from tests.support.commands import parsed
from tidegate.app.cluster.persistence import persistence_fault
from tidegate.app.settings.settings import Settings

DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = [ROOT / "docker-compose.yml", ROOT / "deploy" / "compose.yml"]
SPARE_DESCRIPTORS = 128  # beside connections, as docs/operations.md has it
WRITES = ("/tmp", "/var/lib/tidegate", "/data")
"""Where a service may write: what is temporary, the store, and Redis's files."""


def services(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = YAML(typ="safe").load(path)["services"]
    return found


each_compose = pytest.mark.parametrize("path", COMPOSE, ids=["full", "small"])


def faults(service: dict[str, Any]) -> list[str]:
    """What a service may do that it need not."""
    wrong = []
    if service.get("read_only") is not True:
        wrong.append("its root can be written")
    if service.get("cap_drop") != ["ALL"] or service.get("cap_add"):
        wrong.append("it has capabilities")
    if "no-new-privileges:true" not in service.get("security_opt", []):
        wrong.append("it may gain privileges")
    uid = str(service.get("user", "0")).partition(":")[0]
    if not uid.isdecimal() or int(uid) == 0:
        wrong.append("it may be root")
    if service.get("privileged") or service.get("network_mode") == "host" or service.get("pid"):
        wrong.append("it is not alone")
    mounts = [str(it) for it in [*service.get("volumes", []), *service.get("tmpfs", [])]]
    targets = [
        mount.split(":")[1 if mount in service.get("volumes", []) else 0] for mount in mounts
    ]
    wrong += [f"it writes {it}" for it in targets if not it.startswith(WRITES)]
    wrong += [
        f"it has {it} of the machine" for it in mounts if it.startswith("/") and "docker.sock" in it
    ]
    return wrong


@each_compose
def test_every_service_runs_without_privileges(path: Path) -> None:
    found = {name: faults(service) for name, service in services(path).items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@each_compose
def test_every_service_has_a_place_for_what_is_temporary(path: Path) -> None:
    for name, service in services(path).items():
        assert any(str(it).startswith("/tmp") for it in service["tmpfs"]), name


@each_compose
def test_the_gateway_starts_with_settings_that_there_are(path: Path) -> None:
    gateway = services(path)["gateway"]
    program, *words = gateway["command"]
    assert program == "tidegate"
    assert parsed(*words).command.callback
    names = {name.removeprefix("TIDEGATE_").lower() for name in gateway["environment"]}
    assert names <= set(Settings.model_fields)
    assert gateway["build"]["target"] in re.findall(r"^FROM .* AS (\w+)$", DOCKERFILE, re.MULTILINE)
    context = (path.parent / gateway["build"]["context"]).resolve()
    assert context == ROOT


@each_compose
def test_descriptors_are_enough_for_all_connections(path: Path) -> None:
    wanted = Settings().connections_max + SPARE_DESCRIPTORS
    for name in ("gateway", "redis"):
        assert services(path)[name]["ulimits"]["nofile"] >= wanted


@each_compose
def test_the_redis_keeps_what_a_gateway_acknowledges(path: Path) -> None:
    program, *words = services(path)["redis"]["command"]
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert program == "redis-server"
    settings = {flag.removeprefix("--"): value for flag, value in given.items()}
    assert not persistence_fault(settings, survives_power=True)


@each_compose
def test_what_is_published_is_on_loopback(path: Path) -> None:
    for service in services(path).values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@each_compose
def test_a_gateway_waits_for_its_redis_and_is_asked_if_it_is_ready(path: Path) -> None:
    gateway = services(path)["gateway"]
    assert gateway["depends_on"]["redis"] == {"condition": "service_healthy"}
    assert gateway["healthcheck"]["test"] == ["CMD", "python", "/opt/tidegate/ready.py"]
    assert float(gateway["stop_grace_period"].removesuffix("s")) >= 10


def test_the_image_copies_what_there_is_and_what_is_let_in() -> None:
    let_in = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    for source in copied:
        assert (ROOT / source).exists()
        assert any(fnmatch(source.rstrip("/"), pattern) for pattern in let_in), source


def test_the_image_starts_what_there_is() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    for program, *words in map(json.loads, re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)):
        assert program == "tidegate"
        assert words == ["pipeline", "--help"] or parsed(*words).command.callback
    for name in re.findall(r"\bTIDEGATE_(\w+)=", DOCKERFILE):
        assert name.lower() in Settings.model_fields
    assert "COPY deploy/ready.py /opt/tidegate/ready.py" in last
    [check] = re.findall(r"^ +CMD (\[.*\])$", last, re.MULTILINE)
    assert json.loads(check) == ["python", "/opt/tidegate/ready.py"]


def test_the_image_keeps_its_store_in_a_volume_of_its_user() -> None:
    assert re.search(r"^VOLUME /var/lib/tidegate$", DOCKERFILE, re.MULTILINE)
    assert "chown -R 10001:10001 /var/lib/tidegate" in DOCKERFILE
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (.+)$", last, re.MULTILINE) == ["10001:10001"]
    assert "PYTHONDONTWRITEBYTECODE=1" in DOCKERFILE


def test_the_image_holds_no_secret_and_no_tool_to_fetch_with() -> None:
    assert not re.search(r"(PASSWORD|SECRET|TOKEN|KEY)=", DOCKERFILE)
    assert not re.search(r"\b(curl|wget|sudo|git)\b", DOCKERFILE)
    assert "ADD " not in DOCKERFILE


def test_the_policy_says_how_to_report_and_what_counts() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    for heading in ("Report a vulnerability", "Supported versions", "What is in scope"):
        assert f"## {heading}\n" in text
