"""The scripts keep to the commands of Redis 6.2, and name every key that they touch."""

from __future__ import annotations

import re

import pytest

from tidegate.app.cluster import scripts

SCRIPTS = {
    name: text
    for name, text in vars(scripts).items()
    if name.isupper() and isinstance(text, str) and "redis.call" in text
}
COMMANDS = {
    "DEL", "EXISTS", "GET", "HDEL", "HGET", "HGETALL", "HINCRBY", "HLEN", "HMGET", "HSET", "INCR",
    "INFO", "PEXPIRE", "SET", "XADD", "XDEL", "XRANGE", "XREVRANGE",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_only_old_commands_are_used_and_only_on_keys_that_are_named(name: str) -> None:
    calls = re.findall(r"redis\.call\('(\w+)', ([^,)]+)", SCRIPTS[name])
    assert calls
    assert {command for command, _ in calls} <= COMMANDS
    keys = r"KEYS\[(\d|index)\]|unpack\(KEYS|state|stream|sow|producers|retr(y|ies)|refused|stage"
    named = re.compile(rf"{keys}|fence|'(server|replication|persistence)'")
    assert [place for _, place in calls if not named.match(place)] == []
