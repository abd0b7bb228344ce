"""Sessions are listed, shown, switched and closed from the command line."""

from __future__ import annotations

import json

import pytest

from tests.support.commands import Ended, run
from tidegate.app.cli.administration import SESSION_COLUMNS as COLUMNS
from tidegate.clients.gateway import Gateway

pytestmark = pytest.mark.slow


def sessions(gateway: Gateway, *arguments: str) -> Ended:
    return run("sessions", *arguments, "--gateway", gateway.base_url)


def test_the_life_of_a_session(gateway: Gateway) -> None:
    gateway.put_topic("px", {"key": ["/k"]})
    session = gateway.open_session()
    session.subscribe("px", options="conflation=1s")
    listed = json.loads(sessions(gateway, "list").out)
    assert (listed["session"], listed["subscriptions"]) == (session.id, 1)
    off = sessions(gateway, "conflate", session.id, "off")
    assert off.out == f"Session {session.id} is not conflated\n"
    shown = json.loads(sessions(gateway, "show", session.id).out)
    assert (shown["conflated"], shown["subscriptions"][0]["topic"]) == (False, "px")
    on = sessions(gateway, "conflate", session.id, "on")
    assert on.out == f"Session {session.id} is conflated\n"
    assert session.show()["conflated"] is True
    assert sessions(gateway, "close", session.id).out == f"Closed session {session.id}\n"
    assert (session.show()["state"], session.show()["reason"]) == ("ended", "CLOSED_BY_ADMIN")
    assert sessions(gateway, "list").out == ""
    ended = sessions(gateway, "conflate", session.id, "off")
    assert (ended.code, "[session-unknown]" in ended.err) == (1, True)


@pytest.mark.parametrize("verb", [("show",), ("close",), ("conflate", "on")])
def test_nobody_of_that_name(gateway: Gateway, verb: tuple[str, ...]) -> None:
    ended = sessions(gateway, verb[0], "nobody", *verb[1:])
    assert (ended.code, "[session-unknown]" in ended.err) == (1, True)
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("show",), ("conflate", "s1"), ("conflate", "s1", "x")])
def test_what_makes_no_sense(gateway: Gateway, arguments: tuple[str, ...]) -> None:
    assert sessions(gateway, *arguments).code == 2


def test_a_row_of_the_table(gateway: Gateway) -> None:
    session = gateway.open_session()
    (shown,) = gateway.administration.sessions()
    row = {name: column(shown) for name, column in COLUMNS.items()}
    assert (row["session"], row["state"], row["queued"]) == (session.id, "away", 0)
    assert str(row["opened"]).endswith("Z")
    gateway.administration.close_session(session.id)
