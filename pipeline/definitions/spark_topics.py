"""Topics that say `engine: spark`, as streams: what is asked for over REST needs no file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.keys.errors import KeysError
from tidegate.keys.filter import Filter
from tidegate.keys.projection import Projection
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import START
from tidegate.keys.text.duration import parse_interval, whole_ms
from tidegate.pipeline.columns.bodies import registered
from tidegate.pipeline.definitions.conflation import PLAIN, ConflationDefinition
from tidegate.pipeline.definitions.source import TopicSource
from tidegate.pipeline.definitions.stream import StreamDefinition, TopicSink
from tidegate.pipeline.definitions.toml import RECORDS
from tidegate.pipeline.definitions.view import ViewDefinition
from tidegate.pipeline.errors import DefinitionInvalid

Document = Mapping[str, Any]
NAME_CHARACTERS_MAX = 50
REPLACES = "replace"
SHAPE = ("filter", "grouping", "projection")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A topic that the pipeline is to fill, and the one that it is filled from.

    Both are as in `GET /v1/topics`.
    """

    topic: Document
    source: Document

    @property
    def name(self) -> str:
        """The stream's name: the allowed characters of the topic's name, and a digest of it."""
        topic = str(self.topic["topic"])
        readable = re.sub(r"[^A-Za-z0-9_-]", "-", topic)[:NAME_CHARACTERS_MAX]
        # a.b and a-b give the same text; the digests differ.
        return f"{readable}-{_digest([topic])[:8]}"

    @property
    def keeps_records(self) -> bool:
        """True if its source has records to begin with."""
        return bool(self.source["key"]) and bool(self.source["retain"])

    def conflation(self, wanted: Filter | None) -> ConflationDefinition:
        """Return the conflation that the gateway's own filling would use: the source's merging.

        Raises:
            DefinitionInvalid: its merger is not here, or a reducer writes into the key.
        """
        merge, oof, topic = self.source["merge"], self.keeps_records, self.topic["topic"]
        if isinstance(merge, Mapping):
            reduce = Reduce.of(merge)
            if reduce.writes_to(KeySpec.of(self.topic["key"]).paths):
                raise _not_filled(topic, "a reducer of its source writes to a field of the key")
            return ConflationDefinition(filter=wanted, reduce=reduce, oof=oof)
        if merge != REPLACES:
            try:
                registered(merge)  # raises if it is not here
            except DefinitionInvalid as error:
                raise _not_filled(topic, str(error)) from None
            return ConflationDefinition(filter=wanted, merger=merge, oof=oof)
        return ConflationDefinition(filter=wanted, oof=oof)

    def stream(self, gateway: str, checkpoints: Path) -> StreamDefinition:
        """Return the stream that fills the topic; its checkpoint's path names epochs and shape.

        Raises:
            DefinitionInvalid: it can only be filled by a stream from a file.
        """
        asked, topic = self.topic["source"], str(self.topic["topic"])
        folder = checkpoints.resolve() / self.name
        wanted, shape = _shape(asked, topic)
        # A removal has nothing but the source's key, which would name no record of the topic.
        if shape is None and self.keeps_records and self.topic["key"] != self.source["key"]:
            raise _not_filled(
                topic,
                f"its key is {self.topic['key']}, that of its source "
                f"{self.source['topic']} is {self.source['key']}; a definition file may say so",
            )
        return StreamDefinition(
            name=self.name,
            gateway=gateway.rstrip("/"),
            source=TopicSource(asked["topic"], RECORDS if self.keeps_records else START, None),
            key=KeySpec.of(self.topic["key"]),
            interval_text=asked["interval"],
            interval_ms=whole_ms(parse_interval(asked["interval"])),
            sink=TopicSink(topic, declared=True),
            description="",
            # Another shape is another folder, so its old state is never read by mistake.
            checkpoint=folder / self._digest_of_shape(),
            dead_letters=folder / "dead",
            view=None if shape is None else ViewDefinition(None, wanted, shape, None),
            conflation=self.conflation(wanted) if shape is None else PLAIN,
        )

    def _digest_of_shape(self) -> str:
        """Return a digest of all that makes an old checkpoint useless; an interval may change."""
        asked = self.topic["source"]
        identity = [self.topic["epoch"], self.source["epoch"], asked["topic"], self.topic["key"]]
        # A view takes the newest of each record, however its source merges.
        merge = self.source["merge"] if asked["grouping"] is None else REPLACES
        return _digest([*identity, *(asked[field] for field in SHAPE), merge])


def streams_of(
    topics: Sequence[Document], gateway: str, checkpoints: Path, taken: Collection[str]
) -> tuple[list[StreamDefinition], list[str]]:
    """Return a stream for each topic that says `engine: spark`, and why others are not filled.

    Streams from a file fill those that are `taken`.
    """
    streams, unfit = [], []
    for each in declarations(topics):
        # Two streams of one topic would fence each other.
        if each.topic["topic"] in taken:
            continue
        try:
            streams.append(each.stream(gateway, checkpoints))
        except DefinitionInvalid as error:
            unfit.append(str(error))
    return streams, unfit


def declarations(topics: Sequence[Document]) -> list[Declaration]:
    """Return the usable topics of a gateway that the pipeline is to fill."""
    # The definition of an unusable topic cannot be read here, so neither end may be one.
    by_name = {it["topic"]: it for it in topics if it.get("state") != "unusable"}
    return [
        Declaration(topic, by_name[topic["source"]["topic"]])
        for topic in by_name.values()
        if topic["source"] is not None
        and topic["source"]["engine"] == "spark"
        and topic["source"]["topic"] in by_name
    ]


def _shape(asked: Document, topic: str) -> tuple[Filter | None, Projection | None]:
    try:
        wanted = None if asked["filter"] is None else Filter.parse(asked["filter"])
        if asked["grouping"] is None:
            return wanted, None
        columns, grouping = ",".join(asked["projection"]), str(KeySpec.of(asked["grouping"]))
        return wanted, Projection.parse(f"[{columns}]", 0, grouping, 0)
    except KeysError as error:
        raise _not_filled(topic, error.detail) from None


def _not_filled(topic: str, reason: str) -> DefinitionInvalid:
    return DefinitionInvalid(f"topic {topic} is not filled: {reason}")


def _digest(parts: Sequence[object]) -> str:
    text = json.dumps(parts, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
