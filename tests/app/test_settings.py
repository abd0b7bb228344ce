"""What a value of each kind may look like, in a file and in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tidegate.app.settings.checks import NEEDS
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


SUBJECTS = tuple(name for name in NEEDS if name.startswith("subject_"))
GIVEN: dict[str, Any] = {
    "auth_keys": "keys.json",
    "auth_issuer": "https://id.example",
    "auth_audience": "desk",
    "auth_policy": "policy.toml",
    "auth_oidc_client_id": "pages",
    "auth_oidc_secret_file": "secret",
    "auth_oidc_scope": "openid email",
    "auth_oidc_logout": True,
    "tls_cert": "cert.pem",
    "tls_key": "key.pem",
    "tls_client_ca": "ca.pem",
    "tls_client_auth": "required",
    "hsts": "1d",
    "redis": "redis://127.0.0.1",
    "redis_prefix": "desk",
    "redis_replicas": 1,
    **dict.fromkeys(SUBJECTS, 5),
}


@pytest.mark.parametrize("name", NEEDS)
def test_a_setting_without_effect_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} has no effect without {NEEDS[name]}"):
        Settings(**{name: GIVEN[name]})


def test_settings_have_an_effect_beside_those_that_they_need() -> None:
    assert Settings(**GIVEN).hsts == Duration.parse("1d")
    given: dict[str, Any] = {"hsts": "1d", "trusted_proxies": ["10.0.0.1"]}
    assert Settings(**given).hsts == Duration.parse("1d")
    with pytest.raises(ValidationError, match="tls_client_ca has no effect"):
        Settings(tls_client_ca="ca.pem", tls_cert="cert.pem")


def test_nothing_that_is_kept_nowhere_survives_a_loss_of_power() -> None:
    with pytest.raises(ValidationError, match="durability has no effect, as data is :memory:"):
        Settings(data=":memory:", durability="power")
    assert Settings(data=":memory:", durability="power", redis="redis://127.0.0.1").redis


def test_a_setting_that_is_given_its_default_needs_nothing() -> None:
    """Charts and units write some of them out."""
    defaults = Settings()
    assert Settings(**{name: getattr(defaults, name) for name in NEEDS}) == defaults
