"""What a session has asked for: its subscriptions, each with what each topic granted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from app.auto import AutoInterval, at_interval
from app.premises import Premises
from app.query import OWN_PREFIX
from app.sessions.cursor import Mark
from app.sse import Format
from app.topic_pattern import TopicPattern
from app.topic_places import place_in
from app.wish import Decided, Wish, granted_to
from conflation.bookmark import Bookmark
from conflation.sessions.resume import replay_start
from conflation.subscription import Command, Subscription
from conflation.topics.topic import Topic


class Granted(NamedTuple):
    """What a subscription got of one topic, in this life of it.

    `start`: where a reader begins that has nothing yet; None: as the request says, with a
    snapshot or a replay.
    """

    subscription: Subscription
    form: Format
    epoch: str
    start: Mark

    def is_over(self, mark: Mark) -> bool:
        """Whether a reader with this mark has all that it will ever get."""
        return self.subscription.command is Command.SOW and mark is not None


@dataclass(slots=True, eq=False)
class Asked:
    """One subscription of a session, to a topic or to all that a pattern takes.

    `unlisten`: stops a pattern's listening for topics that are made later. `auto`: its interval,
    if that follows the connection and a reader has come.
    """

    name: str
    target: str | TopicPattern
    wish: Wish
    topics: dict[str, Granted] = field(default_factory=dict)
    unlisten: Callable[[], None] | None = None
    auto: AutoInterval | None = None

    @property
    def by_pattern(self) -> bool:
        """Whether it may have several topics."""
        return isinstance(self.target, TopicPattern)

    @property
    def text(self) -> str:
        """The topic or the pattern."""
        return self.target.text if isinstance(self.target, TopicPattern) else self.target

    def end(self) -> None:
        """It takes no topics any more."""
        self.topics.clear()
        if self.unlisten is not None:
            self.unlisten()
            self.unlisten = None


def decisions_of(
    gateway: Premises,
    target: str | TopicPattern,
    wish: Wish,
    places: Mapping[str, Bookmark] | None = None,
) -> dict[str, Decided]:
    """What a wish gets of each topic that there is; `places`: what its reader has of them.

    Raises:
        Problem, EngineError, KeysError: one of them does not fit.
    """
    by_pattern = isinstance(target, TopicPattern)
    decisions: dict[str, Decided] = {}
    for topic in _topics_of(gateway, target):
        resume = None
        if places is not None:
            resume = place_in(places, topic, gateway.driver.engine.topic(topic).epoch)
        decisions[topic] = granted_to(gateway, topic, wish, resume, by_pattern=by_pattern)
    return decisions


def declined(gateway: Premises, asked: Asked) -> dict[str, str]:
    """Topics that its pattern takes and it has not, or no more, each with its epoch."""
    if isinstance(asked.target, str):
        return {}
    names = _topics_of(gateway, asked.target)
    return {
        name: gateway.catalog.get(name).record.epoch for name in names if name not in asked.topics
    }


def _topics_of(gateway: Premises, target: str | TopicPattern) -> list[str]:
    if isinstance(target, str):
        return [target]
    prefix = OWN_PREFIX if target.text.startswith(OWN_PREFIX) else ""
    entries = gateway.catalog.listed(prefix, "", gateway.settings.topics_max)
    names = (entry.record.name for entry in entries)
    return [name for name in names if target.matches(name)]


def granted(topic: Topic, decided: Decided) -> Granted:
    """What was decided, from now on.

    Raises:
        BookmarkExpired: it is to begin where the journal does not reach.
    """
    subscription = decided.subscription
    if subscription.replay is not None and subscription.resume is None:
        replay_start(topic, subscription.replay)
    begins = subscription.command.queries or subscription.replay is not None
    start = subscription.resume
    if start is None and not begins:
        start = topic.bookmark(topic.head)
    return Granted(subscription, decided.form, topic.epoch, start)


def changed(before: Granted, decided: Decided, *, paused: bool | None) -> Granted:
    """The same with other options; without a word about it, it stays paused or not.

    An interval that follows the connection goes on from where it is.
    """
    is_paused = before.subscription.paused if paused is None else paused
    subscription = replace(decided.subscription, paused=is_paused)
    if before.subscription.shown.auto is not None:
        subscription = at_interval(subscription, before.subscription.lane_id.interval_ns)
    return before._replace(subscription=subscription)


def shows_otherwise(before: Subscription, after: Subscription) -> bool:
    """Whether rows sent so far are of no use to continue from: other rows, or other fields.

    Without a snapshot only new messages come, so that every place is one to continue from.
    """
    return after.command.queries and _view(before) != _view(after)


def _view(subscription: Subscription) -> tuple[object, ...]:
    feed = subscription.lane_id.feed
    return feed.filter, feed.shape, subscription.lane_id.select
