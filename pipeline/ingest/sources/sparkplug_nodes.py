"""What is known of Sparkplug's edge nodes and devices: their metrics, and whether they are online.

Metrics have names in births only: later messages may name them by aliases, and leave out their
types. So what an edge node sends before its birth cannot be read, and what it sends after a gap is
not all that there was. Both are answered with a request for its births (Eclipse Sparkplug
Specification 3.0, section 6.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tidegate.pipeline.ingest.connector import SourceRecord
from tidegate.pipeline.ingest.payloads import RecordInvalid, json_text
from tidegate.pipeline.ingest.sources.sparkplug_payload import (
    Payload,
    metric_value,
    quality_of,
    read_payload,
    type_name,
)

NAMESPACE = "spBv1.0"
LEVELS = {"NBIRTH": 4, "NDATA": 4, "NDEATH": 4, "DBIRTH": 5, "DDATA": 5, "DDEATH": 5}
"""The messages that are read, and the levels of their topics."""
KEY = ("group", "node", "device", "metric")
OF_NODE = ""
"""The device of metrics that are the edge node's own: a field of a key cannot be null."""
BD_SEQ = "bdSeq"
SEQ_COUNT = 256
REQUEST_SECONDS = 10.0
"""A request for births is repeated after this time at the earliest."""

Shown = dict[str, Any]
"""A message of the topic: the newest value of a metric."""


@dataclass(slots=True)
class Device:
    """The metrics of a device, or of an edge node itself.

    `shown` has the message of each metric that was published last, by the metric's name; `names`
    are those of aliases and `types` those of metrics, both from the last birth.
    """

    shown: dict[str, Shown] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    is_born: bool = False


@dataclass(slots=True)
class EdgeNode:
    """An edge node with its devices.

    `seq` is None before the first message since the start or a death, and `asked_at_s` unless its
    births were asked for and have not come.
    """

    devices: dict[str, Device] = field(default_factory=dict)
    seq: int | None = None
    asked_at_s: float | None = None

    def device(self, name: str) -> Device:
        """Return a device, or the node itself for `OF_NODE`; made on first use."""
        return self.devices.setdefault(name, Device())


@dataclass(frozen=True, slots=True)
class NodeMessage:
    """A message of an edge node, and when it was read, in seconds of a clock that only rises."""

    record: SourceRecord
    group: str
    kind: str
    node_name: str
    device_name: str
    payload: Payload
    node: EdgeNode
    now_s: float

    @property
    def device(self) -> Device:
        """What it is about: a device, or the node itself."""
        return self.node.device(self.device_name)

    def fault(self, reason: str) -> SourceRecord:
        """Return the message as a dead letter."""
        return replace(self.record, fault=reason)


class SparkplugNodes:
    """Turns messages of edge nodes into records, one for each metric.

    Args:
        requests: births may be asked for.
        historical: values from the past are published, too.
    """

    def __init__(self, requests: bool, historical: bool) -> None:
        self._requests = requests
        self._historical = historical
        self._nodes: dict[tuple[str, str], EdgeNode] = {}
        self._wanted: list[tuple[str, str]] = []

    def restore(self, messages: Iterable[bytes]) -> None:
        """Learn from what the topic has which metrics there are, so that deaths can mark them."""
        for text in messages:
            shown = _shown_of(text)
            if shown is not None:
                node = self._nodes.setdefault((shown["group"], shown["node"]), EdgeNode())
                node.device(shown["device"]).shown[shown["metric"]] = shown

    def take_requests(self) -> list[tuple[str, str]]:
        """Return the group and name of each node that is to be asked for its births now."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def read(self, record: SourceRecord, now_s: float) -> Iterator[SourceRecord]:
        """Yield the records of a message: values of metrics, and dead letters.

        One by one, as a birth may have any number of metrics. Read them all before the next
        message.
        """
        try:
            message = self._message(record, now_s)
        except RecordInvalid as error:
            yield replace(record, fault=str(error))
            return
        if message.kind == "NDEATH":
            yield from _node_death(message)
            return
        yield from self._check_sequence(message)
        match message.kind:
            case "NBIRTH" | "DBIRTH":
                yield from self._birth(message)
            case "DDEATH":
                yield from _death(message.device, record.channel)
            case _:
                yield from self._changes(message)

    def _message(self, record: SourceRecord, now_s: float) -> NodeMessage:
        levels = record.channel.split("/")
        kind = levels[2] if len(levels) > 2 else ""
        if levels[0] != NAMESPACE or len(levels) != LEVELS.get(kind):
            raise RecordInvalid("no topic of an edge node or device of Sparkplug B")
        payload = read_payload(record.payload or b"")
        group, node_name = levels[1], levels[3]
        node = self._nodes.setdefault((group, node_name), EdgeNode())
        device = levels[4] if len(levels) > 4 else OF_NODE
        return NodeMessage(record, group, kind, node_name, device, payload, node, now_s)

    def _check_sequence(self, message: NodeMessage) -> Iterator[SourceRecord]:
        """Ask for births if messages were missed; yield the dead letter if that is not allowed.

        A request whose births do not come is repeated: the numbers need not show it, as they begin
        again with each birth.
        """
        node, seq = message.node, message.payload.seq
        before, node.seq = node.seq, seq
        if message.kind == "NBIRTH":
            return
        is_whole = None in (before, seq) or seq == _next(before)
        if is_whole and node.asked_at_s is None:
            return
        self._request(message)
        if is_whole or self._requests:
            return
        reason = f"messages were missed: seq {seq} after {before}; births are not asked for"
        yield SourceRecord(None, None, "", channel=message.record.channel, fault=reason)

    def _birth(self, message: NodeMessage) -> Iterator[SourceRecord]:
        node, device, channel = message.node, message.device, message.record.channel
        if message.kind == "NBIRTH":
            node.asked_at_s = None
            for name, each in node.devices.items():
                if name != OF_NODE:  # until its own birth follows
                    yield from _death(each, channel)
        device.is_born, device.names, device.types = True, {}, {}
        has_nameless = False
        for metric in message.payload.metrics:
            if metric.name:
                device.types[metric.name] = metric.datatype
                if metric.HasField("alias"):
                    device.names[metric.alias] = metric.name
                yield from self._metric(message, metric, metric.name)
            elif not has_nameless:  # one dead letter has the whole message
                has_nameless = True
                yield message.fault("a birth with a metric that has no name")
        gone = [name for name in device.shown if name not in device.types]
        yield from _offline(device, gone, channel)

    def _changes(self, message: NodeMessage) -> Iterator[SourceRecord]:
        device = message.device
        if not device.is_born:
            yield message.fault(f"data before a birth was seen; {self._request(message)}")
            return
        has_unknown = False
        for metric in message.payload.metrics:
            name = metric.name or device.names.get(metric.alias, "")
            if name in device.types:
                yield from self._metric(message, metric, name)
            elif not has_unknown:  # as above
                has_unknown = True
                named = name or f"alias {metric.alias}"
                reason = f"a metric that no birth has, {named}; {self._request(message)}"
                yield message.fault(reason)

    def _metric(self, message: NodeMessage, metric: Any, name: str) -> Iterator[SourceRecord]:
        if metric.is_historical and not self._historical:
            return
        device, channel = message.device, message.record.channel
        kind = type_name(metric.datatype or device.types[name])
        timestamp = metric.timestamp if metric.HasField("timestamp") else None
        quality = quality_of(metric)
        if quality is None:  # it is sent when it changes
            quality = device.shown.get(name, {}).get("quality")
        try:
            shown = {
                "group": message.group,
                "node": message.node_name,
                "device": message.device_name,
                "metric": name,
                "value": metric_value(metric, kind),
                "type": kind,
                "timestamp": message.payload.timestamp_ms if timestamp is None else timestamp,
                "online": True,
                **({} if quality is None else {"quality": quality}),
                **({"historical": True} if metric.is_historical else {}),
            }
            found = _record(shown, channel)
        except RecordInvalid as error:
            yield SourceRecord(None, None, "", name.encode(), channel, fault=str(error))
            return
        if not metric.is_historical:
            device.shown[name] = shown
        yield found

    def _request(self, message: NodeMessage) -> str:
        """Ask for births unless that was done just now; return what was done, for dead letters."""
        if not self._requests:
            return "births are not asked for"
        node, now_s = message.node, message.now_s
        if node.asked_at_s is None or now_s - node.asked_at_s >= REQUEST_SECONDS:
            node.asked_at_s = now_s
            self._wanted.append((message.group, message.node_name))
        return "births were asked for"


def _next(seq: int | None) -> int:
    return 0 if seq is None else (seq + 1) % SEQ_COUNT


def _node_death(message: NodeMessage) -> Iterator[SourceRecord]:
    """Mark all metrics of a node, unless the death is of a connection before its birth's."""
    node, of_node = message.node, message.node.device(OF_NODE)
    born = of_node.shown.get(BD_SEQ) if of_node.is_born else None
    died = next((each for each in message.payload.metrics if each.name == BD_SEQ), None)
    number = None if died is None else died.long_value or died.int_value
    if born is not None and number not in (None, born["value"]):
        return
    node.seq, node.asked_at_s = None, None
    for each in node.devices.values():
        yield from _death(each, message.record.channel)


def _death(device: Device, channel: str) -> Iterator[SourceRecord]:
    device.is_born = False
    yield from _offline(device, list(device.shown), channel)


def _offline(device: Device, names: Iterable[str], channel: str) -> Iterator[SourceRecord]:
    """Mark metrics that are not marked yet; they keep their last value."""
    for name in names:
        if device.shown[name]["online"]:
            device.shown[name] = {**device.shown[name], "online": False}
            yield _record(device.shown[name], channel)


def _record(shown: Shown, channel: str) -> SourceRecord:
    text = json_text(shown)
    return SourceRecord(text, None, "", channel=channel, timestamp_ms=shown["timestamp"])


def _shown_of(text: bytes) -> Shown | None:
    """Return a message of the topic if it is one of a metric."""
    try:
        found = msgspec.json.decode(text, type=Shown)
    except msgspec.DecodeError:
        return None
    is_named = all(isinstance(found.get(name), str) for name in KEY)
    return found if is_named and {"value", "timestamp", "online"} <= found.keys() else None
