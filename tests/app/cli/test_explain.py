"""What subscribing would do, in lines for people or as the gateway's JSON."""

from __future__ import annotations

import json

import pytest

from tests.support.commands import run
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.slow


def test_lines_for_people(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    arguments = ("--options", "conflation=1s,live", "--filter", "/v>1", "--order-by", "/v desc")
    ended = run("explain", "t", *arguments, "--gateway", gateway.base_url)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "command    sow_and_subscribe",
        "options    conflation=1s,conflation_key=[/id],pace=batch",
        "filter     /v > 1",
        "order_by   /v DESC",
        "by default command=sow_and_subscribe,conflation_key=[/id],pace=batch",
        "lane       conflation=1s,conflation_key=[/id],pace=batch&filter=/v > 1 (now 0 on it)",
        "resume     changes",
        "estimate   none: the journal holds no messages",
        "warning    a message is delivered once it is stored, so live changes nothing",
    ]


def test_what_was_published_is_reckoned(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    gateway.publish("t", [b'{"id":1}', b'{"id":2}', b'{"id":1}'])
    ended = run("explain", "t", "--options", "conflation=1h", "--gateway", gateway.base_url)
    estimate = next(line for line in ended.out.splitlines() if line.startswith("estimate"))
    assert estimate == (
        "estimate   0.001 messages and 0.004 bytes a second, had the last 3 messages come again"
    )


def test_a_sow_has_no_lane(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    ended = run("explain", "t", "--command", "sow", "--gateway", gateway.base_url)
    assert ended.out.splitlines() == [
        "command    sow",
        "options    conflation=none",
        "by default conflation=none",
        "estimate   none: a sow is sent once",
    ]


def test_json_is_the_gateway_s_answer(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    ended = run("explain", "t", "--json", "--gateway", gateway.base_url)
    assert json.loads(ended.out) == gateway.explain("t")


def test_a_refusal_is_1_with_its_place(gateway: Gateway) -> None:
    gateway.put_topic("t", {"key": ["/id"]})
    ended = run("explain", "t", "--options", "oof,speed=9", "--gateway", gateway.base_url)
    assert (ended.code, ended.out) == (1, "")
    assert "unknown option" in ended.err
    assert ended.err.count("\n") == 1
