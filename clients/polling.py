"""The state of a subscription that long-polls, because a proxy holds event streams back.

No I/O, no clock, no threads. It says what to ask next, and turns answers into the events that a
stream would have sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from tidegate.clients.answers import Fields, foreign_answer
from tidegate.clients.requests import NO_CONTENT, Request, explain, topic, topic_path
from tidegate.clients.sse import Event

BEGINNING = "-1"
ANSWER_SECONDS_MAX = 60.0  # the gateway holds a request for 20 s
ANSWER_LIMITS = httpx2.Timeout(ANSWER_SECONDS_MAX, connect=5.0)
WITH_SNAPSHOT = frozenset({"sow_and_subscribe", "sow_and_delta_subscribe"})
ENVELOPES = frozenset({"envelope", "batch"})
_REMOVALS = re.compile(r"(?:^|,)\s*oof\s*(?:,|$)")
_EVERY_MESSAGE = re.compile(r"(?:^|,)conflation=none(?:,|$)")
_BOOKMARK = re.compile(r"[A-Za-z0-9]{1,64}-[0-9]{1,19}", re.ASCII)
_POSITION = re.compile(r"([A-Za-z0-9]{1,64})_([0-9]{1,19})(?:\.[0-9a-f]{10})?", re.ASCII)


class Change(msgspec.Struct, frozen=True):
    """A row of the State Protocol; its value stays the JSON text that was sent."""

    headers: Mapping[str, str]
    key: str = "null"
    value: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def is_reset(self) -> bool:
        """True if a snapshot follows."""
        return self.headers.get("control") == "reset"

    @property
    def is_removal(self) -> bool:
        """True if the record of the key is removed."""
        return self.headers.get("operation") == "delete"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer of a polled stream.

    Attributes:
        place: from where the next request continues.
        is_whole: there is no more yet.
    """

    changes: list[Change]
    place: str
    cursor: str | None
    is_whole: bool

    @classmethod
    def of(cls, answer: httpx2.Response) -> Page:
        """Read an answer.

        Raises:
            AnswerInvalid: it is not one of a gateway.
        """
        place = answer.headers.get("stream-next-offset", "")
        try:
            body = b"[]" if answer.status_code == NO_CONTENT else answer.content
            changes = msgspec.json.decode(body, type=list[Change])
        except msgspec.DecodeError:
            place = ""
        if not place:
            raise foreign_answer(answer)
        is_whole = answer.headers.get("stream-up-to-date") == "true"
        return cls(changes, place, answer.headers.get("stream-cursor"), is_whole)


class Polling:
    """The state of a polled subscription: what was granted, and its place.

    Args:
        topic_name: a topic; a pattern is not polled.
        params: the query of the subscription.

    Attributes:
        why_not: why it cannot be polled; empty if it can, as far as is known.
        is_whole: the last answer contained all that there was.
    """

    def __init__(self, topic_name: str, params: Mapping[str, str]) -> None:
        self.is_whole = True
        self._topic = topic_name
        self._params = params
        self._form = params.get("format", "value")
        self._granted: Fields = {}
        self._is_begun = False
        self._place = BEGINNING
        self._cursor: str | None = None
        self._is_in_snapshot = False
        self.why_not = self._reason()

    @property
    def is_granted(self) -> bool:
        """True if the granted options are known, and the topic's type where the format needs it."""
        return bool(self._granted) and (self._form != "value" or "type" in self._granted)

    def begin(self, last_id: str) -> None:
        """Begin after the last event of a stream, or with a snapshot."""
        self._place = last_id if _BOOKMARK.fullmatch(last_id) else BEGINNING
        self._cursor = None
        self._is_begun = self._is_in_snapshot = False
        self.is_whole = True

    def request(self) -> Request[Any]:
        """Return what to ask next."""
        if not self._granted:
            wanted = {name: text for name, text in self._params.items() if name != "format"}
            return explain(self._topic, **wanted)
        if not self.is_granted:
            return topic(self._topic)
        asked = ("options", "filter", "order_by")
        params = {name: self._params[name] for name in asked if name in self._params}
        params |= {"format": "state", "offset": self._place, "live": "long-poll"}
        if self._cursor is not None:
            params["cursor"] = self._cursor
        given = {"params": params, "timeout": ANSWER_LIMITS}
        return Request("GET", f"{topic_path(self._topic)}/stream", Page.of, given)

    def events(self, answer: Any, last_id: str) -> Iterator[Event]:
        """Yield the events that an answer stands for; the stream's id is `last_id` until then."""
        if isinstance(answer, Page):
            yield from self._events(answer, last_id)
        elif self._granted:
            self._granted["type"] = answer.document.get("type", "json")
        else:
            self._granted = dict(answer)
        self.why_not = self._reason()

    def _reason(self) -> str:
        if "*" in self._topic or ">" in self._topic:
            return "a pattern is not polled"
        command = self._params.get("command")
        is_delta = command == "sow_and_delta_subscribe" and self._form not in ENVELOPES
        if command is not None and (command not in WITH_SNAPSHOT or is_delta):
            return f"the command {command} is not polled in the format {self._form}"
        if _EVERY_MESSAGE.search(self._granted.get("options") or ""):
            return "every message is asked for, and polling brings the newest of each key"
        if self._granted.get("type", "json") != "json":
            return f"a topic of the type {self._granted['type']} is not polled in the format value"
        return ""

    def _events(self, page: Page, last_id: str) -> Iterator[Event]:
        # An id says that everything up to it has arrived: only the last event of a flush has one.
        found = _POSITION.fullmatch(page.place)
        place = f"{found[1]}-{int(found[2])}" if found and page.is_whole else last_id
        made = list(self._made(page))
        self._place, self._cursor, self.is_whole = page.place, page.cursor, page.is_whole
        for number, (name, text) in enumerate(made, 1):
            yield Event(name, text, place if number == len(made) else last_id)

    def _made(self, page: Page) -> Iterator[tuple[str, str]]:
        begins = self._place == BEGINNING and not self._is_in_snapshot
        if not self._is_begun:
            self._is_begun = True
            entry = {name: self._granted.get(name) for name in ("topic", "options", "lane")}
            nothing = dict.fromkeys(("session", "epoch", "heartbeat_ms"))
            yield "hello", _text({**nothing, "subscriptions": [entry]})
        about = _text({"topic": self._topic, "rows": None})
        changes = page.changes
        if begins or (changes and changes[0].is_reset):
            self._is_in_snapshot = True
            yield "group_begin", about
        rows = [each for each in changes if not each.is_reset]
        # As granted: the topic's own options may ask for removals, and a window has them anyway.
        if not _REMOVALS.search(self._granted.get("options") or ""):
            rows = [each for each in rows if not each.is_removal]
        yield from self._rows(rows, is_last=page.is_whole)
        if page.is_whole and self._is_in_snapshot:
            self._is_in_snapshot = False
            yield "group_end", about

    def _rows(self, rows: list[Change], *, is_last: bool) -> Iterator[tuple[str, str]]:
        if self._form == "batch":
            more = "" if is_last else ',"more":true'
            whole = ",".join(map(self._envelope, rows))
            if rows:
                yield "message", f'{{"topic":{_text(self._topic)},"rows":[{whole}]{more}}}'
            return
        for each in rows:
            if self._form == "envelope":
                yield "message", self._envelope(each)
            elif each.is_removal:
                yield "oof", f'{{"reason":"missed","key":{each.key},"value":null}}'
            else:
                yield "message", bytes(each.value).decode()

    def _envelope(self, change: Change) -> str:
        op = "oof" if change.is_removal else "snapshot" if self._is_in_snapshot else "publish"
        # The answer does not say why the record was removed.
        reason = ',"reason":"missed"' if change.is_removal else ""
        value = bytes(change.value).decode()
        about = f'"topic":{_text(self._topic)},"op":"{op}"{reason},"key":{change.key}'
        return f'{{{about},"bookmark":null,"value":{value}}}'


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
