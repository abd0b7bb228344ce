"""Progress is sent where no row had an id, and only to subscriptions with the option."""

from __future__ import annotations

import json

from tests.support.noted import PLAIN_IDS
from tidegate.app.streams.encoding import Format, Style
from tidegate.app.streams.notices import Progress
from tidegate.clients.sse import Event, Parser
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Batch, Frame
from tidegate.conflation.outputs import GroupEnd, Rows
from tidegate.conflation.sessions.subscriber import SubscriberId
from tidegate.conflation.subscription import Command, FeedId, LaneId, Shown, Subscription
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark

SUBSCRIBER: SubscriberId = ("s1", "px")


def style(*, asked: bool = True, ids: bool = True) -> Style:
    wanted = Subscription(
        "px", Command.SUBSCRIBE, LaneId(FeedId(KeySpec())), shown=Shown(progress=asked)
    )
    return Style(Format.VALUE, Kind.JSON, wanted, Bookmark("e1", 3), ids=ids)


def told(progress: Progress, offset: int, epoch: str = "e1") -> list[Event]:
    return Parser().feed(progress.events([(SUBSCRIBER, Bookmark(epoch, offset))]))


def rows(low_water: int | None) -> Rows:
    return Rows("s1", "px", "e1", "publish", Batch((Frame(5, b"1"),), 0, 5, low_water))


def test_a_place_is_told_once() -> None:
    progress = Progress({SUBSCRIBER: style()})
    [event] = told(progress, 7)
    assert (event.name, event.id) == ("progress", "e1-7")
    assert json.loads(event.text) == {"sub": "s1", "topic": "px", "bookmark": "e1-7"}
    assert told(progress, 7) == []
    assert [event.id for event in told(progress, 8)] == ["e1-8"]


def test_where_it_began_is_known() -> None:
    assert told(Progress({SUBSCRIBER: style()}), 3) == []


def test_an_id_is_progress() -> None:
    progress = Progress({SUBSCRIBER: style()})
    progress.wrote([rows(7)])
    assert told(progress, 7) == []
    progress.wrote([GroupEnd("s1", "px", 0, "e1-9")])
    assert told(progress, 9) == []


def test_rows_without_an_id_are_none() -> None:
    progress = Progress({SUBSCRIBER: style()})
    progress.wrote([rows(None)])
    assert len(told(progress, 7)) == 1


def test_in_a_session_a_place_in_the_topic_is_told_beside_the_id() -> None:
    progress = Progress({SUBSCRIBER: style(ids=False)}, PLAIN_IDS)
    progress.wrote([rows(7)])
    [event] = told(progress, 7)
    assert event.id == "s1-7"
    assert json.loads(event.text)["bookmark"] == "e1-7"


def test_a_topic_made_again_begins_anew() -> None:
    progress = Progress({SUBSCRIBER: style()})
    assert told(progress, 7)
    assert told(progress, 2, epoch="e2")


def test_nobody_is_told_who_did_not_ask() -> None:
    progress = Progress({SUBSCRIBER: style(asked=False)})
    assert not progress.is_asked_for
    assert told(progress, 7) == []
