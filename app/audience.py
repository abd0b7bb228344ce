"""An audience: one connection's session, its subscription seated in a topic, or in a pattern's."""

from __future__ import annotations

from collections.abc import Mapping

from app.gateway import Gateway
from app.problems import Problem
from app.sse import Format, Style, event
from app.topic_pattern import TopicPattern
from app.wish import decided
from conflation.errors import EngineError, SessionUnknown
from conflation.sessions.session import SeatId
from conflation.subscription import Subscription
from keys.errors import KeysError

SUBSCRIPTION_NAME = "s1"


class Audience:
    """A session with one subscription, open from the start; close its consumer if it is not used.

    One that `lasts` stays open without a topic, waiting for one.

    Raises:
        LimitReached: as many sessions as may be.
    """

    def __init__(self, gateway: Gateway, *, lasts: bool = False) -> None:
        self.styles: dict[SeatId, Style] = {}
        self._gateway = gateway
        self._session = gateway.new_session_id()
        self.consumer = gateway.driver.open(self._session, lasts=lasts)

    def join(
        self,
        subscription: Subscription,
        form: Format,
        *,
        ids: bool = True,
        announced: bool = False,
    ) -> Style:
        """Take a seat in one topic; `announced`: with a `subscribed` event.

        Raises:
            EngineError: no seat was taken.
        """
        driver = self._gateway.driver
        cut = driver.subscribe(self._session, SUBSCRIPTION_NAME, subscription, announced=announced)
        kind = driver.engine.topic(subscription.topic).definition.kind
        style = Style(form, kind, subscription, cut, ids=ids)
        self.styles[SUBSCRIPTION_NAME, subscription.topic] = style
        return style

    def follow(self, pattern: TopicPattern, values: Mapping[str, str]) -> None:
        """Take a seat in each topic of a pattern that is made from now on, until the close.

        A topic that the request does not fit is passed over with an `error` event.
        """

        def made(topic: str) -> None:
            if not pattern.matches(topic):
                return
            try:
                subscription, form, _ = decided(self._gateway, topic, values, by_pattern=True)
                self.join(subscription, form, ids=False, announced=True)
            except SessionUnknown:
                pass  # it has been told goodbye
            except (Problem, EngineError, KeysError) as error:
                self.consumer.tell(_passed_over(topic, error))

        catalog = self._gateway.catalog
        catalog.listen(made)
        self.consumer.at_close = lambda: catalog.unlisten(made)

    def hello(self, *, id_text: str = "") -> bytes:
        """The first event: the session and its seats so far."""
        epochs = {style.cut.epoch for style in self.styles.values() if style.ids}
        document = {
            "session": self._session,
            "epoch": next(iter(epochs), None),
            "heartbeat_ms": self._gateway.settings.heartbeat.ms,
            "subscriptions": [style.entry(name) for (name, _), style in self.styles.items()],
        }
        return event("hello", document, id_text=id_text)


def _passed_over(topic: str, error: Problem | EngineError | KeysError) -> bytes:
    problem = error
    if not isinstance(problem, Problem):
        problem = Problem(problem.code, f"{problem.detail}.", position=problem.position)
    document = {"sub": SUBSCRIPTION_NAME, "topic": topic, **problem.document()}
    return event("error", document)
