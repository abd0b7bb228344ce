"""Containers run as nobody in particular, on a root that cannot be written, without privileges."""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML

from dev import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
WRITES = ("/tmp", "/var/lib/tidegate", "/data")
"""Where a service may write: what is temporary, the store, and Redis's files."""


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = YAML(typ="safe").load(ROOT / "docker-compose.yml")[
        "services"
    ]
    return found


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


def test_every_service_runs_without_privileges() -> None:
    assert {name: faults(service) for name, service in services().items() if faults(service)} == {}


def test_every_service_has_a_place_for_what_is_temporary() -> None:
    for name, service in services().items():
        assert any(str(it).startswith("/tmp") for it in service["tmpfs"]), name


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
