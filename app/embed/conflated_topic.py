"""A conflated topic inside an application: publish to it, and answer requests with its streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidegate.app.embed.driven_topic import DrivenTopic, TopicLimits
from tidegate.app.embed.topic_rows import Row, topic_rows
from tidegate.app.names import checked_topic_name
from tidegate.app.refusals import Refused
from tidegate.app.streams.subscribe_request import (
    RequestedSubscription,
    SubscribeRequest,
    grant_request,
    place_of,
)
from tidegate.conflation.definition import Definition, History, QueuePolicy
from tidegate.conflation.options.table import Options
from tidegate.conflation.subscription import Command
from tidegate.keys.errors import KeyMissing, Refusal
from tidegate.keys.jsontext import check_json, one_line
from tidegate.keys.python_values import json_text
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec, canonical_key, record_key
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import MILLISECOND, parse_duration

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

OPTIONS_CHARACTERS_MAX: Final = 4_096
DEFAULT_PACE: Final = "batch"
LAST_EVENT_ID: Final = b"last-event-id"
PLACES: Final = ("lastEventId", "last_event_id")
"""Parameters with the id: that of polyfills of EventSource, which is the newer one, and ours."""
TEXT = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class _Texts:
    """What a subscription asks for, in the words of the HTTP API."""

    options: str
    filter: str
    order_by: str
    command: str | None
    format: str | None


class ConflatedTopic:
    """A topic whose subscribers get the newest value of each key, each at its own interval.

    It keeps its records in memory, and belongs to the event loop that first uses it.

    Args:
        key: paths of the fields that say what a message is about, such as `["/symbol"]`. Without
            one nothing is kept, and only intervals conflate, to the newest message.
        name: as events show it.
        options: default options of its subscriptions, such as `conflation=1s`.
        merge: reducers by field, such as `{"/volume": "sum"}`; by default the newest value counts.
        expiration: a record that is not published again for so long, such as `30s`, is removed.
        conflation: the queue policy, not the option: what becomes of the full queue of a reader of
            every message: `conflate`, `always`, `unsubscribe` or `off`.
        limits: bounds of readers and of what is kept.

    Raises:
        Refusal: one of them is not valid; its `code` and `position` say what and where.
    """

    def __init__(
        self,
        *,
        key: Sequence[str] = (),
        name: str = "topic",
        options: str = "",
        merge: Mapping[str, str] | None = None,
        expiration: str | None = None,
        conflation: str = QueuePolicy.CONFLATE,
        limits: TopicLimits | None = None,
    ) -> None:
        limits = limits or TopicLimits()
        self._definition = _definition(key, merge, expiration, conflation, limits)
        self._defaults = Options.parse(options)
        self._key_of = record_key(self._definition.key_spec) if key else None
        self._driven = DrivenTopic(checked_topic_name(name), self._definition, limits)

    async def publish(self, *messages: Any) -> str:
        """Publish messages in order, all or none; return the id of the last one.

        Args:
            messages: objects that JSON can say: mappings, dataclasses, structs of msgspec, models
                of pydantic; or bytes that are JSON already. A Decimal is a number with all of its
                digits.

        Raises:
            Refusal: message-invalid, also for NaN, infinity and values of other types;
                key-missing, key-invalid, limit-reached.
        """
        bookmark = await self._driven.publish([self._checked(message) for message in messages])
        return str(bookmark)

    async def remove(self, *record_keys: Any) -> int:
        """Remove records; return how many there were.

        Args:
            record_keys: each the value of the key's field, or the list of values of several.

        Raises:
            Refusal: key-invalid.
        """
        return await self._driven.remove([self._canonical(each) for each in record_keys])

    def response(
        self,
        request: Request,
        options: str = "",
        *,
        filter: str = "",
        order_by: str = "",
        command: str | None = None,
        format: str | None = None,
        last_event_id: str | None = None,
    ) -> Response:
        """Return the response to a request: a stream of server-sent events.

        A request that is refused is answered with a problem (RFC 9457), with its code, and with
        the position in the options or the filter.

        Args:
            request: whose `Last-Event-ID`, else `lastEventId` or `last_event_id` of the query, says
                after which id to continue, and whose headers say which compression it takes.
            options: such as `conflation=500ms`.
            filter: which messages, such as `/price > 100`.
            order_by: the order of snapshot rows and windows.
            command: by default `sow_and_subscribe`: the records, then the changes.
            format: `value`, `envelope` or `batch`.
            last_event_id: in place of that of the request.
        """
        # Loaded here: `subscribe` needs neither.
        from starlette.responses import Response

        from tidegate.app.embed.stream_response import StreamResponse, refusal_response
        from tidegate.app.streams.compression import negotiated_encoder

        resume_text = last_event_id or _last_event_id_of(request)
        resume = place_of(resume_text) if resume_text else None
        try:
            asked = self._parsed(_Texts(options, filter, order_by, command, format))
            granted = self._granted(asked, resume)
        except Refusal as refusal:
            return refusal_response(refusal)
        if resume is not None and self._has_all(granted, resume):
            return Response(status_code=204)  # a finished query: the browser need not come back
        driven = self._driven
        open_writer = partial(driven.open_writer, granted, asked, resume)
        encoder = negotiated_encoder(request.scope["headers"])
        return StreamResponse(open_writer, driven.times, encoder)

    def subscribe(
        self,
        options: str = "",
        *,
        filter: str = "",
        order_by: str = "",
        command: str | None = None,
    ) -> AsyncGenerator[list[Row], None]:
        """Return an iterator over the rows of each flush; arguments as of `response`.

        A loop that takes long gets the newest rows when it asks again: nothing waits for it but
        the messages of `conflation=none`, whose queue is bounded.

        Raises:
            Refusal: options-invalid, filter-invalid; while iterating limit-reached.
            SubscriptionClosed: while iterating; the queue of every message was full.
        """
        asked = self._parsed(_Texts(options, filter, order_by, command, None))
        return topic_rows(
            partial(self._driven.open_reader, self._granted(asked, None), asked, None)
        )

    def close(self) -> None:
        """End every stream with a goodbye that tells its reader when to come back.

        The topic stays usable. At a shutdown, call it before the server ends its connections: the
        end of a lifespan is too late.
        """
        self._driven.close_readers()

    # What is asked for

    def _parsed(self, texts: _Texts) -> SubscribeRequest:
        return SubscribeRequest.parse(texts, OPTIONS_CHARACTERS_MAX)

    def _granted(self, asked: SubscribeRequest, resume: Bookmark | None) -> RequestedSubscription:
        return grant_request(
            self._driven.name,
            self._definition,
            asked,
            defaults=self._defaults,
            default_pace=DEFAULT_PACE,
            resume=resume,
        )

    def _has_all(self, granted: RequestedSubscription, resume: Bookmark) -> bool:
        """Return True for a query whose reader has its answer already."""
        topic = self._driven.topic
        is_query = granted.subscription.command is Command.SOW
        return is_query and resume.epoch == topic.epoch and resume.offset <= topic.head

    # What is published

    def _checked(self, message: Any) -> tuple[bytes, str]:
        text = bytes(message) if isinstance(message, TEXT) else _json(message, "message-invalid")
        check_json(text)
        payload = one_line(text)
        if self._key_of is None:
            return payload, ""
        try:
            return payload, self._key_of(payload)
        except KeyMissing as missing:
            if isinstance(message, list | tuple):
                raise KeyMissing(f"{missing.detail}; several are publish(*messages)") from None
            if isinstance(message, str):
                raise KeyMissing(f"{missing.detail}; JSON text is passed as bytes") from None
            raise

    def _canonical(self, fields: Any) -> str:
        listed = list(fields) if isinstance(fields, list | tuple) else [fields]
        if len(listed) != len(self._definition.key_spec.paths):
            count = len(self._definition.key_spec.paths)
            raise Refused("key-invalid", f"The topic's key has {count} fields.")
        return canonical_key(_json(listed, "key-invalid"))


def _definition(
    paths: Iterable[str],
    merge: Mapping[str, str] | None,
    expiration: str | None,
    conflation: str,
    limits: TopicLimits,
) -> Definition:
    if isinstance(paths, str):
        raise Refused("key-invalid", f'key is a list of paths, such as ["{paths}"].')
    spec = KeySpec.of(paths)
    if conflation not in set(QueuePolicy):
        raise Refused("policy-invalid", f"conflation is one of {', '.join(QueuePolicy)}.")
    reduce = Reduce.of(merge) if merge else None
    if reduce is not None and reduce.writes_to(spec.paths):
        raise Refused("topic-invalid", "A reducer may not write to a field of the key.")
    expiration_ns = None if expiration is None or not spec else parse_duration(expiration)
    if expiration_ns is not None and expiration_ns < MILLISECOND:
        raise Refused("topic-invalid", "expiration is 1ms or longer.")
    return Definition(
        History(limits.journal_messages_max, limits.journal_bytes_max),
        spec,
        QueuePolicy(conflation),
        merge=reduce,
        expiration_ns=expiration_ns,
    )


def _last_event_id_of(request: Request) -> str:
    """Return the id of the header, else of the query, as a gateway reads it; empty without one."""
    headers = request.scope["headers"]
    sent = next((value for name, value in headers if name == LAST_EVENT_ID), b"")
    if sent:
        return sent.decode("latin-1")
    # A browser that reconnects repeats its address, so the header is the newer one.
    query = request.query_params
    return next((query[name] for name in PLACES if query.get(name)), "")


def _json(value: Any, code: str) -> bytes:
    try:
        return json_text(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(code, f"{error}.") from None
