"""What a value of each kind may look like, in a file and in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tidegate.app.settings.kinds import (
    CountValue,
    DurationValue,
    EnvironmentText,
    FlagValue,
    FunctionNames,
    HostNames,
    Origins,
    SizeValue,
    TextValue,
)
from tidegate.app.settings.settings import Settings
from tidegate.keys.text.duration import Duration

KINDS: dict[str, Any] = {
    "duration": DurationValue,
    "size": SizeValue,
    "count": CountValue,
    "flag": FlagValue,
    "text": TextValue,
    "hosts": HostNames,
    "origins": Origins,
    "functions": FunctionNames,
}


@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [
        pytest.param("duration", "10s", Duration.parse("10s"), id="duration"),
        pytest.param("duration", Duration.parse("10s"), Duration.parse("10s"), id="duration-read"),
        pytest.param("size", "8KiB", 8192, id="size"),
        pytest.param("size", 7, 7, id="size-bytes"),
        pytest.param("count", 7, 7, id="count"),
        pytest.param("count", EnvironmentText("7"), 7, id="count-environment"),
        pytest.param("flag", True, True, id="flag"),
        pytest.param("flag", EnvironmentText("0"), False, id="flag-environment"),
        pytest.param("text", Path("a/b"), "a/b", id="text"),
        pytest.param("hosts", EnvironmentText("A.example, b"), ("a.example", "b"), id="hosts"),
        pytest.param("origins", ["https://A.b:1"], ("https://a.b:1",), id="origins"),
        pytest.param("hosts", ["a.example.", "FD00::7"], ("a.example", "fd00::7"), id="names"),
        pytest.param(
            "origins",
            ["https://a.b:443", "http://a.b:80", "http://a.b:443"],
            ("https://a.b", "http://a.b", "http://a.b:443"),
            id="origins-default-ports",
        ),
        pytest.param("origins", ["*"], ("*",), id="origins-any"),
        pytest.param("functions", ["a.b:c"], ("a.b:c",), id="functions"),
    ],
)
def test_what_is_read(kind: str, given: object, read: object) -> None:
    assert TypeAdapter(KINDS[kind]).validate_python(given) == read


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        pytest.param("origins", ["*", "https://a.b"], id="origins-any-and-more"),
        pytest.param("duration", 10, id="duration-without-unit"),
        pytest.param("size", True, id="size-flag"),
        pytest.param("count", "7", id="count-text"),
        pytest.param("flag", "true", id="flag-text"),
        pytest.param("text", "", id="text-empty"),
        pytest.param("hosts", "a.example", id="hosts-text"),
        pytest.param("hosts", ["a.example:8080"], id="hosts-port"),
        pytest.param("functions", [5], id="functions-number"),
    ],
)
def test_what_is_refused(kind: str, given: object) -> None:
    with pytest.raises(ValidationError, match="expected"):
        TypeAdapter(KINDS[kind]).validate_python(given)


def test_no_repr_shows_a_password() -> None:
    settings = Settings(redis="rediss://gateway:hush@bus.example:6379")
    assert "hush" not in f"{settings!r}{settings}"


def test_no_certificate_is_required_that_nobody_is_asked_for() -> None:
    with pytest.raises(ValidationError, match="tls_client_auth = required needs tls_client_ca"):
        Settings(tls_cert="cert.pem", tls_client_auth="required")
