"""Administration of a gateway: topics changed by their entity tags, and all sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

import httpx2

from tidegate.clients.answers import Fields, fields_of
from tidegate.clients.errors import AnswerInvalid
from tidegate.clients.transport import topic_path

SESSIONS = "/v1/sessions"
SESSIONS_PER_PAGE = 1000
CREATED, NO_CONTENT = 201, 204

Ask = Callable[..., httpx2.Response]
"""Method, path, and httpx2's arguments for headers and body; returns a successful answer."""


@dataclass(frozen=True, slots=True)
class Defined:
    """A topic's definition and live figures, the definition's entity tag, and whether it is new."""

    document: Fields
    etag: str
    is_new: bool = False


class Administration:
    """Requests of an administrator; errors are those of `Gateway`.

    With `if_match` a change is made only while the topic has that entity tag; the refusal has the
    code `precondition-failed`.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    # Topics

    def topic(self, topic: str) -> Defined:
        """Return a topic with its definition and entity tag."""
        return _defined(self._ask("GET", topic_path(topic)))

    def put_topic(
        self,
        topic: str,
        definition: Fields,
        *,
        if_match: str | None = None,
        only_new: bool = False,
    ) -> Defined:
        """Create a topic, or replace its definition; `only_new`: refuse one that is there."""
        # RFC 9110, 13.1.2: `*` matches whatever is there.
        headers = _match(if_match) | ({"If-None-Match": "*"} if only_new else {})
        return _defined(self._ask("PUT", topic_path(topic), json=definition, headers=headers))

    def patch_topic(self, topic: str, patch: Fields, *, if_match: str | None = None) -> Defined:
        """Change what a JSON Merge Patch names; None restores a default."""
        headers = _match(if_match)
        return _defined(self._ask("PATCH", topic_path(topic), json=patch, headers=headers))

    def delete_topic(self, topic: str, *, if_match: str | None = None) -> None:
        """Delete a topic and its messages; its subscriptions end."""
        _nothing(self._ask("DELETE", topic_path(topic), headers=_match(if_match)))

    # Sessions

    def sessions(self) -> Iterator[Fields]:
        """Yield every open session, by id; they are fetched in pages."""
        # The gateway gives the address of the next page: it knows where the last one ended.
        following: str | None = f"{SESSIONS}?limit={SESSIONS_PER_PAGE}"
        while following:
            page = fields_of(self._ask("GET", following))
            yield from page["sessions"]
            following = page.get("next")

    def session(self, session: str) -> Fields:
        """Return a session with its subscriptions; for a while also one that has ended."""
        return fields_of(self._ask("GET", _session_path(session)))

    def tune_session(self, session: str, **tuning: object) -> Fields:
        """Set `limits` or `conflated` of a session, and return it."""
        return fields_of(self._ask("PATCH", _session_path(session), json=tuning))

    def close_session(self, session: str) -> None:
        """Close a session; its reader gets a goodbye and does not reconnect."""
        _nothing(self._ask("DELETE", _session_path(session)))


def _defined(answer: httpx2.Response) -> Defined:
    document, etag = fields_of(answer), answer.headers.get("etag", "")
    return Defined(document, etag, answer.status_code == CREATED)


def _nothing(answer: httpx2.Response) -> None:
    # A proxy or another server may say 200 to anything; nothing was deleted then.
    if answer.status_code != NO_CONTENT:
        raise AnswerInvalid(f"{answer.request.url} did not answer as a Tidegate gateway does")


def _match(if_match: str | None) -> dict[str, str]:
    return {} if if_match is None else {"If-Match": if_match}


def _session_path(session: str) -> str:
    return f"{SESSIONS}/{quote(session, safe='')}"
