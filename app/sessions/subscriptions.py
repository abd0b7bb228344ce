"""The subscriptions of a session, each with what each topic granted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidegate.app.access.grants import Grants
from tidegate.app.delivery.auto import AutoInterval, at_interval
from tidegate.app.delivery.encoding import Format
from tidegate.app.http.problems import Problem, problem_of
from tidegate.app.http.requests import OWN_PREFIX, TopicPattern
from tidegate.app.http.wire import event
from tidegate.app.sessions.cursor import Mark
from tidegate.app.sessions.subscribe_request import (
    RequestedSubscription,
    SessionContext,
    SubscribeRequest,
    granted_to,
    place_in,
)
from tidegate.conflation.errors import EngineError
from tidegate.conflation.sessions.backfill import replay_start
from tidegate.conflation.subscription import Command, Subscription
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.errors import KeysError
from tidegate.keys.text.bookmark import Bookmark


class GrantedSubscription(NamedTuple):
    """What a subscription was granted in one epoch of a topic.

    `start`: where a reader without a bookmark begins; None: with the request's snapshot or replay.
    """

    subscription: Subscription
    form: Format
    epoch: str
    start: Mark

    def is_over(self, mark: Mark) -> bool:
        """Return True if a reader with this mark has everything that will ever come."""
        return self.subscription.command is Command.SOW and mark is not None


@dataclass(slots=True, eq=False)
class SessionSubscription:
    """One subscription of a session, to a topic or to all that a pattern takes.

    `unlisten`: stops a pattern's listening for topics that are made later. `auto`: its interval,
    if that follows the connection and a reader has come.
    """

    name: str
    target: str | TopicPattern
    wish: SubscribeRequest
    topics: dict[str, GrantedSubscription] = field(default_factory=dict)
    unlisten: Callable[[], None] | None = None
    auto: AutoInterval | None = None

    @property
    def by_pattern(self) -> bool:
        """True for a pattern, which may have several topics."""
        return isinstance(self.target, TopicPattern)

    @property
    def text(self) -> str:
        """The topic or the pattern."""
        return self.target.text if isinstance(self.target, TopicPattern) else self.target

    def takes(self, topic: str) -> bool:
        """Return True for a new topic that its pattern matches and that may be read.

        One that may not be read is not even refused, as that would name it.
        """
        grants = self.wish.grants
        is_matched = isinstance(self.target, TopicPattern) and self.target.matches(topic)
        return is_matched and (grants is None or grants.may_read(topic))

    @property
    def may_be_auto(self) -> bool:
        """True if its interval follows the connection, or did before a change."""
        found = self.topics.values()
        return self.auto is not None or any(it.subscription.shown.auto for it in found)

    def end(self) -> None:
        """Release the topics, and stop listening for new ones."""
        self.topics.clear()
        if self.unlisten is not None:
            self.unlisten()
            self.unlisten = None


def decide_target(
    context: SessionContext,
    target: str | TopicPattern,
    wish: SubscribeRequest,
    places: Mapping[str, Bookmark] | None = None,
) -> dict[str, RequestedSubscription]:
    """Decide a request for each topic of the target; `places`: the reader's bookmarks.

    Raises:
        Problem, EngineError, KeysError: one of them does not fit.
    """
    by_pattern = isinstance(target, TopicPattern)
    decisions: dict[str, RequestedSubscription] = {}
    for topic in _topics_of(context, target, wish.grants):
        resume = None
        if places is not None:
            resume = place_in(places, topic, context.driver.engine.topic(topic).epoch)
        decisions[topic] = granted_to(context, topic, wish, resume, by_pattern=by_pattern)
    return decisions


def declined(context: SessionContext, asked: SessionSubscription) -> dict[str, str]:
    """Return the topics that a pattern matches and the subscription has not, with their epochs."""
    if isinstance(asked.target, str):
        return {}
    names = _topics_of(context, asked.target, asked.wish.grants)
    return {
        name: context.catalog.get(name).record.epoch for name in names if name not in asked.topics
    }


def end_reason(context: SessionContext, topic: str) -> str:
    """Return why a subscription ended in a topic: REMOVED, or UNUSABLE here."""
    return "REMOVED" if context.catalog.unusable(topic) is None else "UNUSABLE"


def _topics_of(
    context: SessionContext, target: str | TopicPattern, grants: Grants | None
) -> list[str]:
    if isinstance(target, str):
        return [target]
    # The gateway's own topics are listed only for a prefix that names them.
    prefix = OWN_PREFIX if target.text.startswith(OWN_PREFIX) else ""
    entries = context.catalog.listed(prefix, "", context.settings.topics_max)
    names = (entry.record.name for entry in entries)
    found = [name for name in names if target.matches(name)]
    return found if grants is None else [name for name in found if grants.may_read(name)]


def granted(topic: Topic, decided: RequestedSubscription) -> GrantedSubscription:
    """Grant what was decided, from now on.

    Raises:
        BookmarkExpired: it is to begin where the journal does not reach.
    """
    subscription = decided.subscription
    if subscription.replay is not None and subscription.resume is None:
        # For its error alone: the engine would raise it only once a reader comes.
        replay_start(topic, subscription.replay)
    begins = subscription.command.queries or subscription.replay is not None
    start = subscription.resume
    if start is None and not begins:
        start = topic.bookmark(topic.head)
    return GrantedSubscription(subscription, decided.form, topic.epoch, start)


def changed(
    before: GrantedSubscription, decided: RequestedSubscription, *, paused: bool | None
) -> GrantedSubscription:
    """Return a grant with other options; `paused` None leaves it paused or not.

    An interval with `auto` keeps its present value.
    """
    is_paused = before.subscription.paused if paused is None else paused
    subscription = replace(decided.subscription, paused=is_paused)
    if before.subscription.shown.auto is not None:
        subscription = at_interval(subscription, before.subscription.lane_id.interval_ns)
    return before._replace(subscription=subscription)


def changes_rows(before: Subscription, after: Subscription) -> bool:
    """Return True if earlier rows are no base to continue from: other rows, or other fields.

    Without a snapshot only new messages come, and every bookmark is one to continue from.
    """
    return after.command.queries and _view(before) != _view(after)


def _view(subscription: Subscription) -> tuple[object, ...]:
    feed = subscription.lane_id.feed
    return feed.filter, feed.shape, subscription.lane_id.select


def check_count(count: int, most: int) -> None:
    """Refuse more subscriptions than a session may have.

    Raises:
        Problem: limit-reached.
    """
    if count > most:
        detail = f"A session has at most {most} subscriptions, each topic of a pattern being one."
        raise Problem("limit-reached", detail, headers={"Retry-After": "60"})


def warnings_of(decisions: Iterable[RequestedSubscription]) -> tuple[str, ...]:
    """Return the warnings of all decisions, each once."""
    return tuple(dict.fromkeys(text for each in decisions for text in each.warnings))


def passed_over(name: str, topic: str, error: Problem | EngineError | KeysError) -> bytes:
    """Encode the notice that a topic of a pattern is left out, and why."""
    return event("refused", {"sub": name, "topic": topic, **problem_of(error).document()})
