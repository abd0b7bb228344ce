"""The subscriptions of a session, each with what each topic granted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, Protocol, Self

from tidegate.app.access.limits.lane_use import Wanted
from tidegate.app.access.limits.quota import Usage
from tidegate.app.names import TopicPattern
from tidegate.app.refusals import Refused, refused
from tidegate.app.streams.auto import AutoInterval, at_interval
from tidegate.app.streams.cursor import Mark
from tidegate.app.streams.encoding import Format, Style, Styles
from tidegate.app.streams.sse import event
from tidegate.app.streams.subscribe_request import RequestedSubscription, SubscribeRequest
from tidegate.conflation.sessions.backfill import replay_start
from tidegate.conflation.subscription import Command, LaneId, Subscription
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.errors import Refusal

NAMED_MAX = 100  # topics that a notice names; a pattern may match ten thousand

FIRST = "s1"
"""The name of a session's first subscription, and of the only one of a plain GET."""


class GrantedSubscription(NamedTuple):
    """What a subscription was granted in one epoch of a topic.

    `start`: where a reader without a bookmark begins; None: with the request's snapshot or replay.
    It matters only for kept sessions, as a plain GET has one reader.
    """

    subscription: Subscription
    form: Format
    epoch: str
    start: Mark

    def is_over(self, mark: Mark) -> bool:
        """Return True for a finished `sow`, of which a reader with this mark has everything."""
        return self.subscription.command is Command.SOW and mark is not None


class LaneCount(Protocol):
    """Counts the lanes that subscriptions hold."""

    def hold(self, topic: str, lane_id: LaneId) -> None:
        """Count a subscription in a lane."""

    def release(self, topic: str, lane_id: LaneId) -> None:
        """Count it no longer."""


class GrantedTopics(dict[str, GrantedSubscription]):
    """What each topic granted to a subscription; its lanes count as used by the session's owner."""

    __slots__ = ("_usage",)

    def __init__(
        self,
        usage: LaneCount | None = None,
        grants: Mapping[str, GrantedSubscription] | None = None,
    ) -> None:
        self._usage = usage
        for topic, found in (grants or {}).items():
            self[topic] = found

    def __setitem__(self, topic: str, found: GrantedSubscription) -> None:
        if self._usage is not None:
            # Hold before releasing: the count of a lane that stays must not drop to 0.
            self._usage.hold(topic, found.subscription.lane_id)
            self._let_go(topic)
        super().__setitem__(topic, found)

    def drop(self, topic: str) -> None:
        """Forget a topic, if it is there."""
        self._let_go(topic)
        self.pop(topic, None)

    def drop_all(self) -> None:
        """Forget all topics."""
        for topic in list(self):
            self.drop(topic)

    def _let_go(self, topic: str) -> None:
        found = self.get(topic)
        if found is not None and self._usage is not None:
            self._usage.release(topic, found.subscription.lane_id)


@dataclass(slots=True, eq=False)
class SessionSubscription:
    """One subscription of a session, to a topic or to all topics that match a pattern.

    `unlisten`: stops a pattern's listening for topics that are created. `auto`: the controller of
    its interval, if that follows the connection and a reader was attached.
    """

    name: str
    target: str | TopicPattern
    request: SubscribeRequest
    topics: GrantedTopics = field(default_factory=GrantedTopics)
    unlisten: Callable[[], None] | None = None
    auto: AutoInterval | None = None

    @property
    def by_pattern(self) -> bool:
        """True if it is to a pattern, which may match several topics."""
        return isinstance(self.target, TopicPattern)

    @property
    def text(self) -> str:
        """The topic or the pattern."""
        return self.target.text if isinstance(self.target, TopicPattern) else self.target

    def admits(self, topic: str) -> bool:
        """Return True for a new topic that its pattern matches and its grants allow to read.

        A refusal of another topic would reveal its name.
        """
        grants = self.request.grants
        is_matched = isinstance(self.target, TopicPattern) and self.target.matches(topic)
        return is_matched and (grants is None or grants.may_read(topic))

    @property
    def may_be_auto(self) -> bool:
        """True if its interval follows the connection, or did before a change."""
        found = self.topics.values()
        return self.auto is not None or any(it.subscription.shown.auto for it in found)

    def copy(self, usage: Usage) -> SessionSubscription:
        """Return a copy to be changed, whose lanes count as used."""
        return replace(self, topics=GrantedTopics(usage, self.topics))

    def end(self) -> None:
        """Release the topics, and stop listening for new ones."""
        self.topics.drop_all()
        if self.unlisten is not None:
            self.unlisten()
            self.unlisten = None


class PlainSubscription(NamedTuple):
    """The one subscription of a plain GET, and its style, which sessions of equal requests share.

    Separate ones would be a fifth of an idle stream's memory. The mappings are read-only, so that
    no change reaches another session by mistake: copy them first.

    Args:
        decided: what the requests were granted.
        asked: the subscription, by name. Its lanes are counted by each session.
        styles: its style, with the cut of the first session: each session keeps its own.
    """

    decided: RequestedSubscription
    asked: Mapping[str, SessionSubscription]
    styles: Styles

    @classmethod
    def of(cls, topic: Topic, request: SubscribeRequest, decided: RequestedSubscription) -> Self:
        """Return what the sessions of a request share."""
        subscription, form, _ = decided
        grants = {topic.name: GrantedSubscription(subscription, form, topic.epoch, None)}
        asked = SessionSubscription(FIRST, topic.name, request, GrantedTopics(grants=grants))
        style = Style(form, topic.definition.kind, subscription, topic.bookmark(topic.head))
        styles = {(FIRST, topic.name): style}
        own = MappingProxyType({FIRST: asked}), MappingProxyType(styles)
        return cls(decided, *own)

    @property
    def is_shared(self) -> bool:
        """False if an option depends on the writes of one stream."""
        return all(style.is_plain for style in self.styles.values())


def lanes_of(decisions: Mapping[str, RequestedSubscription]) -> list[Wanted]:
    """Return the lane that each topic grants."""
    return [(topic, each.subscription.lane_id) for topic, each in decisions.items()]


def lanes_held(asked: Mapping[str, SessionSubscription]) -> list[Wanted]:
    """Return the lane of each topic that subscriptions have."""
    return [
        (topic, found.subscription.lane_id)
        for each in asked.values()
        for topic, found in each.topics.items()
    ]


def granted(topic: Topic, decided: RequestedSubscription) -> GrantedSubscription:
    """Grant what was decided, from now on.

    Raises:
        BookmarkExpired: it is to begin where the journal does not reach.
    """
    subscription = decided.subscription
    start = start_of(topic, subscription)
    return GrantedSubscription(subscription, decided.form, topic.epoch, start)


def start_of(topic: Topic, subscription: Subscription) -> Mark:
    """Return where a subscription begins that is granted now; None: with a snapshot or replay.

    Raises:
        BookmarkExpired: it is to begin where the journal does not reach.
    """
    if subscription.replay is not None and subscription.resume is None:
        # Only for its error, which the engine would raise once a reader is attached.
        replay_start(topic, subscription.replay)
    begins = subscription.command.queries or subscription.replay is not None
    if subscription.resume is None and not begins:
        return topic.bookmark(topic.head)
    return subscription.resume


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
    """Return True if a reader cannot resume after a change: rows or fields are different.

    Without a snapshot only new messages are sent, so a reader can resume from every bookmark.
    """
    return after.command.queries and _view(before) != _view(after)


def _view(subscription: Subscription) -> tuple[object, ...]:
    feed = subscription.lane_id.feed
    return feed.filter, feed.shape, subscription.lane_id.select


def check_count(count: int, most: int) -> None:
    """Refuse more subscriptions than a session may have.

    Raises:
        Refused: limit-reached.
    """
    if count > most:
        raise Refused("limit-reached", _at_most(most), retry_after_s=60)


def warnings_of(decisions: Iterable[RequestedSubscription]) -> tuple[str, ...]:
    """Return the warnings of all decisions, each once."""
    return tuple(dict.fromkeys(text for each in decisions for text in each.warnings))


def left_out(most: int, topics: Collection[str]) -> Refused:
    """Return the refusal of topics for which a session has no room; it names them."""
    named = ", ".join([*topics][:NAMED_MAX])
    more = f" and {len(topics) - NAMED_MAX} more" if len(topics) > NAMED_MAX else ""
    return Refused("limit-reached", f"{_at_most(most)} Left out: {named}{more}.")


def _at_most(most: int) -> str:
    of_pattern = "each topic of a pattern being one (session_subscriptions_max)"
    return f"A session has at most {most} subscriptions, {of_pattern}."


def passed_over(name: str, topic: str, error: Refusal) -> bytes:
    """Encode the notice that a topic of a pattern is left out, and why."""
    return event("refused", {"sub": name, "topic": topic, **refused(error).document()})
