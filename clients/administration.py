"""Administration of a gateway: topics changed by their entity tags, and all sessions."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.clients import requests
from tidegate.clients.answers import Fields
from tidegate.clients.requests import Defined
from tidegate.clients.transport import Transport


class Administration:
    """Requests of an administrator; errors are those of `Gateway`.

    With `if_match` a change is made only while the topic has that entity tag; the refusal has the
    code `precondition-failed`.
    """

    def __init__(self, transport: Transport) -> None:
        self._ask = transport.ask

    # Topics

    def topic(self, topic: str) -> Defined:
        """Return a topic with its definition and entity tag."""
        return self._ask(requests.topic(topic))

    def put_topic(
        self,
        topic: str,
        definition: Fields,
        *,
        if_match: str | None = None,
        only_new: bool = False,
    ) -> Defined:
        """Create a topic, or replace its definition; `only_new`: refuse one that is there."""
        put = requests.put_topic(topic, definition, if_match=if_match, only_new=only_new)
        return self._ask(put)

    def patch_topic(self, topic: str, patch: Fields, *, if_match: str | None = None) -> Defined:
        """Change what a JSON Merge Patch names; None restores a default."""
        return self._ask(requests.patch_topic(topic, patch, if_match=if_match))

    def delete_topic(self, topic: str, *, if_match: str | None = None) -> None:
        """Delete a topic and its messages; its subscriptions end."""
        self._ask(requests.delete_topic(topic, if_match=if_match))

    # Sessions

    def sessions(self) -> Iterator[Fields]:
        """Yield every open session, by id; they are fetched in pages."""
        # The gateway gives the address of the next page: it knows where the last one ended.
        page = self._ask(requests.sessions_page())
        yield from page["sessions"]
        while page.get("next"):
            page = self._ask(requests.sessions_page(page["next"]))
            yield from page["sessions"]

    def session(self, session: str) -> Fields:
        """Return a session with its subscriptions; for a while also one that has ended."""
        return self._ask(requests.about_session(session))

    def tune_session(self, session: str, **tuning: object) -> Fields:
        """Set `limits` or `conflated` of a session, and return it."""
        return self._ask(requests.about_session(session, "PATCH", document=tuning))

    def close_session(self, session: str) -> None:
        """Close a session; its reader gets a goodbye and does not reconnect."""
        self._ask(requests.about_session(session, "DELETE"))
