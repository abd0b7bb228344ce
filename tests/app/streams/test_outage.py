"""An outage is told once when it begins, and once when it is over.

Rule cluster-3 is told here.
"""

from __future__ import annotations

from tests.support.rules import rule
from tidegate.app.streams.notices import Outage

pytestmark = rule("cluster-3")


def test_only_news_is_told() -> None:
    told: list[bytes] = []
    outage = Outage("bus", lambda: 1_700_000_000_250, told.append)
    outage.over()
    assert (told, outage.is_on) == ([], False)
    outage.began("it died")
    outage.began("it is still dead")
    assert outage.is_on
    assert told == [
        b'event: status\ndata: {"source":"bus","stale_since":"2023-11-14T22:13:20.250Z"}\n\n'
    ]
    outage.over()
    outage.over()
    assert told[1:] == [b'event: status\ndata: {"source":"bus","stale_since":null}\n\n']
