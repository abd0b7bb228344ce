"""What is missing outside skips a test, or fails it where all is required."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.support import outside


def test_a_missing_thing_skips_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such thing"):
        outside.require(False, "no such thing")


def test_a_missing_thing_fails_where_all_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_REQUIRE_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="no such thing"):
        outside.require(False, "no such thing")


def test_what_is_there_needs_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_REQUIRE_ALL", "1")
    outside.require(True, "no such thing")


def test_ticks_are_looked_for_where_the_variable_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TIDEGATE_REQUIRE_ALL", raising=False)
    monkeypatch.setenv("TIDEGATE_TICKS", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="no recorded ticks"):
        outside.require_ticks()
    (tmp_path / "ticks-20131008.ndjson.gz").touch()
    assert outside.require_ticks() == tmp_path / "ticks-20131008.ndjson.gz"


@pytest.mark.redis
def test_the_redis_of_the_tests_is_a_real_one(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.xadd("tests-of-the-tests", {"a": "1"}, id="1-1")
        try:
            assert client.xrange("tests-of-the-tests") == [(b"1-1", {b"a": b"1"})]
        finally:
            client.delete("tests-of-the-tests")


@pytest.mark.redis
def test_the_bundled_server_takes_over_where_no_other_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("PATH", "")
    with outside.redis_server() as address, redis.Redis.from_url(address) as client:
        assert client.info("server")["server_name"] == "valkey"
