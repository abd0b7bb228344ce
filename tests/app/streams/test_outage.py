"""An outage is reported once when it begins, and once when it ends."""

from __future__ import annotations

from tests.support.rules import rule
from tidegate.app.streams.outage import Outage

pytestmark = rule("cluster-3")


def test_only_a_change_is_reported() -> None:
    reported: list[bytes] = []
    outage = Outage("bus", lambda: 1_700_000_000_250, reported.append)
    outage.over()
    assert (reported, outage.is_on) == ([], False)
    outage.began("it died")
    outage.began("it is still dead")
    assert outage.is_on
    assert reported == [
        b'event: status\ndata: {"source":"bus","stale_since":"2023-11-14T22:13:20.250Z"}\n\n'
    ]
    outage.over()
    outage.over()
    assert reported[1:] == [b'event: status\ndata: {"source":"bus","stale_since":null}\n\n']
