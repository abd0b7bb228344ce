"""The state of the world, line by line."""

from __future__ import annotations

import json

import pytest

from tests.clients.support.streams import plain, scripted
from tests.support.commands import run
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.slow


def test_records_as_published_or_in_envelopes(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    gateway.publish("t", [b'{"id":1,"v":1.50}', b'{"id":2}', b'{"id":1,"v":2.50}'])
    ended = run("sow", "t", "--gateway", gateway.base_url)
    assert (ended.code, ended.err) == (0, "")
    assert sorted(ended.out.splitlines()) == ['{"id":1,"v":2.50}', '{"id":2}']
    ended = run("sow", "t", "--format", "envelope", "--gateway", gateway.base_url)
    keys = [json.loads(line)["key"] for line in ended.out.splitlines()]
    assert sorted(keys) == [[1], [2]]


def test_a_query(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    gateway.publish("t", [b'{"id":%d,"v":1}' % n for n in range(9)])
    wanted = ("--filter", "/id > 2", "--order-by", "/id DESC", "--top-n", "2", "--skip-n", "1")
    ended = run("sow", "t", *wanted, "--select", "[-/,+/id]", "--gateway", gateway.base_url)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == ['{"id":7}', '{"id":6}']


def test_a_wrong_query_is_1(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    ended = run("sow", "t", "--filter", "/id =", "--gateway", gateway.base_url)
    assert ended.code == 1
    assert "[filter-invalid, position 5]" in ended.err


def test_a_server_that_is_no_gateway_is_3_in_one_line() -> None:
    with scripted(plain(200, b"<html>\n", "text/html")) as other:
        ended = run("sow", "t", "--gateway", other.address)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("tidegate: ")
    assert ended.err.endswith("it is no Tidegate gateway\n")
    assert ended.err.count("\n") == 1
