"""`tidegate bench URL` measures a gateway, and leaves nothing behind in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import call, serving_here
from tests.support.tokens import claims, grant, public_jwk, signed, write_keys
from tidegate.app.cli.bench import TOPIC, Measured
from tidegate.clients.gateway import Gateway


def test_figures_are_rates_and_ages() -> None:
    ages = [float(number) for number in range(1, 101)]
    found = Measured(published=1000, delivered=300, took_s=2.0, ages_ms=ages).document()
    assert found == {
        "published_per_s": 500,
        "delivered_per_s": 150,
        "age_ms": {"p50": 51.0, "p99": 100.0, "max": 100.0},
    }
    assert Measured().document()["age_ms"] == {"p50": 0.0, "p99": 0.0, "max": 0.0}


@pytest.mark.system
def test_a_gateway_is_measured_and_left_as_it_was(gateway: Gateway) -> None:
    words = ("--rate", "200", "--keys", "5", "--subscribers", "3", "--for", "1s")
    ended = call("bench", gateway.base_url, *words, "--options", "conflation=50ms")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert 50 < found["published_per_s"] <= 250
    # Three subscribers, five keys, at most twenty times a second each.
    assert 0 < found["delivered_per_s"] <= 3 * 5 * 21
    assert 0 < found["age_ms"]["p50"] <= found["age_ms"]["p99"] <= found["age_ms"]["max"]
    assert gateway.find_topic(TOPIC) is None


def test_a_refusal_is_one_line_and_leaves_nothing(gateway: Gateway) -> None:
    ended = call("bench", gateway.base_url, "--options", "conflation=x")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "[options-invalid, topic tidegate-bench, position 11]" in ended.err
    assert gateway.find_topic(TOPIC) is None


def test_a_topic_that_is_there_is_not_touched(gateway: Gateway) -> None:
    gateway.put_topic(TOPIC, {"key": ["/mine"]})
    ended = call("bench", gateway.base_url, "--for", "1s")
    assert (ended.code, TOPIC in ended.err) == (1, True)
    assert gateway.topic(TOPIC)["key"] == ["/mine"]
    gateway.delete_topic(TOPIC)


def test_the_token_may_be_in_the_file_of_the_environment(tmp_path: Path) -> None:
    keys, file = write_keys(tmp_path / "keys.json", public_jwk("HS256")), tmp_path / "token"
    file.write_text(signed(claims("ann", grant(f"read,write,admin {TOPIC}"))))
    with serving_here(auth_keys=keys) as address:
        words = ("bench", address, "--options", "conflation=x")
        assert "[options-invalid" in call(*words, TIDEGATE_TOKEN_FILE=str(file)).err
        assert "[unauthenticated" in call(*words).err


def test_wrong_words_are_2(gateway: Gateway) -> None:
    assert call("bench", gateway.base_url, "engine").code == 2
    assert call("bench", "http://127.0.0.1:9/path").code == 2
    shown = call("bench", gateway.base_url, "--help")
    assert (shown.code, "--subscribers" in shown.out) == (0, True)
