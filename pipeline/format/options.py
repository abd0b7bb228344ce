"""The options of Spark's `format("tidegate")`, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from tidegate.clients import DEFAULT_ADDRESS
from tidegate.keys.errors import KeysError
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import START
from tidegate.pipeline.definitions.toml import RECORDS, alike
from tidegate.pipeline.errors import DefinitionInvalid

BUS_SCHEMES = ("redis://", "rediss://", "unix://")
GATEWAY_SCHEMES = ("http://", "https://")
SHARDS_MAX = 1_000  # each reads the whole batch, so more of them only multiply the reading
READS = {"gateway", "prefix", "topic", "from", "rows_per_batch", "shards"}
WRITES = {"gateway", "topic", "key", "run"}
OF_SPARK = {"checkpointlocation", "path", "queryname", "triggerinterval"}
"""Options that Spark's own methods add."""


# Each task costs a start and a connection, for which fewer rows would not pay.
ROWS_PER_TASK = 20_000
ROWS_PER_TASK_MAX = 250_000  # a task that fails reads them again


def rows_per_task(rows: int, cores: int | None) -> int:
    """Return the most rows that one task should read if `cores` tasks run at once.

    A task sends on one row for each of its keys: if all keys occur in every task, ten tasks send
    five times the rows of two.
    """
    if cores is None:
        return ROWS_PER_TASK
    return min(max(ROWS_PER_TASK, ceil(rows / cores)), ROWS_PER_TASK_MAX)


@dataclass(frozen=True)
class ReadOptions:
    """The options of `spark.readStream` and `spark.read`.

    Attributes:
        gateway: the address of a gateway, or of the Redis that gateways share.
        topic: the topic to read.
        prefix: what the names of keys in that Redis begin with.
        start: `epoch`, `now`, `records` or a bookmark.
        rows_per_batch: the most rows of a batch.
        shards: the number of partitions, each of which has all messages of its keys.
        cores: how many tasks run at once; set by the pipeline, not an option of users.
        start_file: where a stream's start is stored; set by the pipeline, not an option of users.
    """

    gateway: str
    topic: str
    prefix: str = "tidegate"
    start: str = START
    rows_per_batch: int | None = None
    shards: int | None = None
    cores: int | None = None
    start_file: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read Spark's option texts.

        Raises:
            DefinitionInvalid: unknown, missing or malformed options.
        """
        given = _given(options, READS)
        prefix = given.get("prefix", cls.prefix)
        if "{" in prefix or "}" in prefix:
            raise DefinitionInvalid("prefix has no braces")
        gateway, start = _address(given), given.get("from", START)
        # Only the journal is read from Redis; records come from a gateway's state of the world.
        if start == RECORDS and gateway.startswith(BUS_SCHEMES):
            raise DefinitionInvalid("from = records needs the address of a gateway, not of a Redis")
        return cls(
            gateway=gateway,
            topic=given["topic"],
            prefix=prefix,
            start=start,
            rows_per_batch=_whole(given, "rows_per_batch"),
            shards=_whole(given, "shards", SHARDS_MAX),
        )

    def rows_per_task(self, rows: int) -> int:
        """Return how many rows of a batch a task reads at most."""
        return rows_per_task(rows, self.cores)

    @property
    def is_bus(self) -> bool:
        """True if the topic is read directly from Redis."""
        return self.gateway.startswith(BUS_SCHEMES)


@dataclass(frozen=True)
class WriteOptions:
    """The options of `df.writeStream` and `df.write`.

    Attributes:
        gateway: the address of a gateway.
        topic: the topic to write.
        fields: the key with which the topic is created if it does not exist.
        run: the number of this run of the stream; None for the time of its start.
    """

    gateway: str
    topic: str
    fields: tuple[str, ...] = ()
    run: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read Spark's option texts.

        Raises:
            DefinitionInvalid: an unknown, missing or malformed option, or the address of a Redis.
        """
        given = _given(options, WRITES)
        gateway = _address(given)
        if gateway.startswith(BUS_SCHEMES):
            raise DefinitionInvalid(
                "format tidegate writes through a gateway, which checks each message and its key "
                "before subscribers see it: give the http address of a gateway on that Redis"
            )
        run = _whole(given, "run", 2**63 - 1)
        return cls(gateway=gateway, topic=given["topic"], fields=_fields(given), run=run)


def _given(options: Mapping[str, str], known: set[str]) -> dict[str, str]:
    # Spark's options are case-insensitive.
    given = {name.lower(): text for name, text in options.items()}
    unknown = sorted(given.keys() - known - OF_SPARK)
    if unknown:
        meant = alike(unknown[0], known)
        hint = f"did you mean {meant}?" if meant else f"it takes {', '.join(sorted(known))}"
        raise DefinitionInvalid(f"format tidegate has no option {unknown[0]} here; {hint}")
    if not given.get("topic"):
        raise DefinitionInvalid('format tidegate needs .option("topic", NAME)')
    return given


def _address(given: Mapping[str, str]) -> str:
    address = given.get("gateway", DEFAULT_ADDRESS)
    # Other addresses would be retried for a minute. The text may hold a password, so it is hidden.
    if not address.startswith((*GATEWAY_SCHEMES, *BUS_SCHEMES)):
        raise DefinitionInvalid(
            f"gateway is an address such as {DEFAULT_ADDRESS} or redis://127.0.0.1:6379/0"
        )
    return address


def _fields(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of a key in a topic's spelling, to compare them with an existing key."""
    texts = [text.strip() for text in given.get("key", "").split(",")]
    try:
        return tuple(str(path) for path in KeySpec.of(list(filter(None, texts))).paths)
    except KeysError as error:
        raise DefinitionInvalid(f"key is fields such as /symbol,/venue: {error.detail}") from None


def _whole(given: Mapping[str, str], name: str, most: int | None = None) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) < 20 and int(text) > 0
    if not is_number or (most is not None and int(text) > most):
        above = "" if most is None else f" and at most {most}"
        raise DefinitionInvalid(f"{name} is a whole number above 0{above}, not {text[:40]}")
    return int(text)
