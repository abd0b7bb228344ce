"""Where a topic's journal is read: from a gateway, or straight from the Redis that gateways share.

Both give the same rows and bookmarks, so either can continue a checkpoint of the other.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pyarrow as pa

from tidegate.clients.answers import Journal, shown_address
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.clients.retry import TOPIC_UNKNOWN, Retry
from tidegate.keys.text.bookmark import START, continued, join_bookmark
from tidegate.pipeline.connection import PATIENT, gateway_at
from tidegate.pipeline.errors import GatewayRefused, SourceLost
from tidegate.pipeline.format.envelope import column_batch, envelope_batch
from tidegate.pipeline.format.options import ReadOptions

if TYPE_CHECKING:
    from tidegate.pipeline.redis_server import RedisServer

# --- the journal in the Redis that gateways share
#
# An entry of the stream is what was published in one step: its id is its last offset, `f` the
# first, `t` the time, and `i` its messages and removals (MessagePack), as in docs/bus.md.

# KEYS state stream: epoch, last offset, the first that the stream still has, and the epochs before.
# The values of an entry stay where they are.
_ENDS = """
local known = redis.call('HMGET', KEYS[1], 'epoch', 'head', 'former')
local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
local first = ''
for at = 1, oldest and #oldest[2] or 0, 2 do
    if oldest[2][at] == 'f' then first = oldest[2][at + 1] end
end
return {known[1] or '', known[2] or '0', first, known[3] or ''}
"""


class Published(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=0):
    """A message in an entry."""

    payload: bytes
    record_key: str = ""


class Removed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """A removal in an entry."""

    record_key: str
    reason: str


_items = msgspec.msgpack.Decoder(list[Published | Removed]).decode

Spelling = Callable[[bytes], bytes]


class BusJournal:
    """The journal of a topic in Redis or Valkey (a `TopicJournal`); it only ever reads.

    All keys begin with `prefix`.
    """

    def __init__(self, redis: RedisServer, prefix: str, topic: str) -> None:
        self._redis = redis
        self._topic = topic
        # The braces are a hash tag: a Redis Cluster keeps keys with equal tags in one slot, which
        # a script over two keys and a transaction need.
        self._documents = f"{{{prefix}}}:documents"
        self._state = f"{{{prefix}:{topic}}}:state"
        self._stream = f"{{{prefix}:{topic}}}:stream"
        self._spelled: Spelling | None = None

    def ends(self) -> Journal:
        """Return the ends with one script and three short texts."""
        answer = self._redis.ask("EVAL", _ENDS, 2, self._state, self._stream)
        epoch, head, first, former = (word.decode() for word in answer)
        if not epoch:
            raise GatewayRefused(
                f"{self._redis.label} has no topic {self._topic} (topic-unknown): create it at a "
                "gateway, and look at the option prefix, before a stream reads it"
            )
        oldest = join_bookmark(epoch, int(first)) if first else None
        newest = join_bookmark(epoch, int(head)) if first or head != "0" else None
        return Journal(epoch, oldest, newest, continued(former))

    def definition(self) -> Mapping[str, Any]:
        """Return the topic's definition, or nothing where no gateway has written one."""
        document = self._redis.ask("HGET", self._documents, self._topic)
        found: dict[str, Any] = msgspec.json.decode(document or b"{}")
        return found

    def page(self, epoch: str, after: int, last: int) -> pa.RecordBatch:
        """Return rows as `TopicJournal` does."""
        entries = self._entries(epoch, after, last)
        return self._columns(entries, epoch, after, last)

    def _entries(self, epoch: str, after: int, last: int) -> list[Any]:
        """Return entries after a position: several small ones, or one large one alone."""
        through = min(last, after + MESSAGES_PER_REQUEST_MAX)
        # One transaction: an epoch that was asked for on its own might not be that of the entries.
        known, entries = self._redis.ask_together(
            ("HGET", self._state, "epoch"),
            ("XRANGE", self._stream, f"({after}-0", f"{through}-0"),
        )
        if not entries:
            # A large entry may end after `through`: take just the next one, however large.
            known, entries = self._redis.ask_together(
                ("HGET", self._state, "epoch"),
                ("XRANGE", self._stream, f"({after}-0", "+", "COUNT", 1),
            )
        if (known or b"").decode() != epoch:
            raise SourceLost(
                f"topic {self._topic} is in another epoch ({(known or b'none').decode()}, "
                f"no longer {epoch}): what was still to be read is not of this one"
            )
        return list(entries)

    def _columns(self, entries: list[Any], epoch: str, after: int, last: int) -> pa.RecordBatch:
        spell = self._spelling()
        due = after + 1
        items: list[Published | Removed] = []
        times: list[int] = []
        for _, fields in entries:
            first, timestamp_ms = int(fields[b"f"]), int(fields[b"t"])
            if first > due:
                break
            # An entry is one publish request; the slice may begin or end in its middle.
            found = _items(fields[b"i"])[due - first : last + 1 - first]
            items += found
            times += [timestamp_ms] * len(found)
            due += len(found)
        # A column at a time: an object for each row would cost three times as much as all of this.
        keys = [item.record_key or None for item in items]
        values = [None if isinstance(item, Removed) else item.payload for item in items]
        if spell is not bytes:
            values = [None if value is None else spell(value) for value in values]
        reasons = [item.reason if isinstance(item, Removed) else None for item in items]
        return column_batch((keys, values, times, reasons), epoch, range(after + 1, due))

    def _spelling(self) -> Spelling:
        """Return how a value of the topic's type is written as JSON."""
        # Once for each task: asking with every page would double the requests.
        if self._spelled is None:
            kind = self.definition().get("type", "json")
            self._spelled = {"text": _text, "binary": _binary}.get(kind, bytes)
        return self._spelled


def _text(payload: bytes) -> bytes:
    return msgspec.json.encode(payload.decode())


def _binary(payload: bytes) -> bytes:
    return b'"' + base64.b64encode(payload) + b'"'


# --- the journal at a gateway, and the choice between both

# A page becomes one Arrow batch: large enough for columns to pay, small enough for a task's memory.
MESSAGES_PER_REQUEST_MAX = 5_000


class TopicJournal(Protocol):
    """A topic's journal."""

    def ends(self) -> Journal:
        """Return the bookmarks of the oldest and the newest message, without any message.

        Raises:
            GatewayRefused: there is no such topic.
            GatewayUnreachable: it does not answer.
        """

    def definition(self) -> Mapping[str, Any]:
        """Return the fields of the topic's definition.

        Raises:
            GatewayRefused, GatewayUnreachable: as `ends`.
        """

    def page(self, epoch: str, after: int, last: int) -> pa.RecordBatch:
        """Return rows that follow position `after` without a gap, up to `last` or fewer.

        An empty batch means that the journal no longer has them.

        Raises:
            SourceLost: they are gone, or the topic has another epoch.
            GatewayRefused, GatewayUnreachable: as `ends`.
        """


class GatewayJournal:
    """The journal of a topic at a gateway (a `TopicJournal`)."""

    def __init__(self, gateway: Gateway, topic: str) -> None:
        self._gateway = gateway
        self._topic = topic

    def ends(self) -> Journal:
        """Return the ends with one small request."""
        try:
            return self._gateway.journal(self._topic)
        except GatewayProblem as problem:
            if problem.code != TOPIC_UNKNOWN:
                raise
            address = shown_address(self._gateway.base_url)
            raise GatewayRefused(
                f"{address} has no topic {self._topic} (topic-unknown): create it, "
                "or publish to it, before a stream reads it"
            ) from None

    def definition(self) -> Mapping[str, Any]:
        """Return the topic's definition, as the gateway shows it."""
        return self._gateway.topic(self._topic)

    def page(self, epoch: str, after: int, last: int) -> pa.RecordBatch:
        """Return rows as `TopicJournal` does."""
        since = join_bookmark(epoch, after) if after else START
        wanted = min(last - after, MESSAGES_PER_REQUEST_MAX)
        try:
            body = self._gateway.journal_page(self._topic, since, wanted)
        except GatewayProblem as problem:
            if problem.code != "bookmark-expired":
                raise
            body = b""
        return envelope_batch(body, epoch, after)


@contextmanager
def open_journal(options: ReadOptions, retry: Retry = PATIENT) -> Iterator[TopicJournal]:
    """Yield the journal that the options name; `retry` repeats its requests.

    Raises:
        DefinitionInvalid: not an address.
        PipelineError: what the gateway refuses in the block.
    """
    if options.is_bus:
        # Here, not above: a fifth of a second of a core, in each of the ten Pythons of a start.
        from tidegate.pipeline.redis_server import RedisServer

        with RedisServer(options.gateway, retry) as redis:
            yield BusJournal(redis, options.prefix, options.topic)
    else:
        with gateway_at(options.gateway, retry) as gateway:
            yield GatewayJournal(gateway, options.topic)
