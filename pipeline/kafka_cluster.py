"""A Kafka cluster, as definition files name it, and the settings of its clients."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from tidegate.pipeline.definitions.source import BROKERS, KAFKA_TOPIC, read_kafka_options
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import (
    DefinitionInvalid,
    EndpointRefused,
    EndpointUnavailable,
    PipelineError,
)

ANSWER_SECONDS_MAX = 10.0
QUIET = {"log_level": 0}
"""The client would log to standard error; errors that matter are raised."""
# ruff: noqa: SLF001 - librdkafka's names of the client's own codes begin with an underscore
REFUSALS = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """The fields of a table that name the brokers, and the topic that is read or written."""

    brokers: str
    topic: str
    options: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, table: TomlTable, own: Collection[str], command: str) -> KafkaCluster:
        """Take the fields from a table.

        Args:
            table: of a source or a sink.
            own: options that the command sets itself, and refuses from others.
            command: what an error calls it, such as `an ingest`.
        """
        options = read_kafka_options(table)
        for name, _ in options:
            if name in {"bootstrap.servers", *QUIET, *own}:
                raise DefinitionInvalid(
                    f"{table.where('options')}: {name} is not an option of {command}"
                )
        return cls(
            brokers=table.checked("brokers", BROKERS.fullmatch, "brokers such as 127.0.0.1:9092"),
            topic=table.checked("topic", KAFKA_TOPIC.fullmatch, "the name of a Kafka topic"),
            options=options,
        )

    @property
    def label(self) -> str:
        """The topic without brokers, as these come and go."""
        return f"kafka topic {self.topic}"

    def settings(self, own: Mapping[str, object]) -> dict[str, Any]:
        """Return the configuration of a client: the options, overridden by brokers and `own`."""
        return {**dict(self.options), "bootstrap.servers": self.brokers, **QUIET, **own}

    def problem(self, error: KafkaError) -> PipelineError:
        """Return what a client's error means for the run."""
        said = f"Kafka topic {self.topic} at {self.brokers}: {error.str()}"
        return EndpointRefused(said) if error.code() in REFUSALS else EndpointUnavailable(said)


class ClientFailure:
    """Keeps the error of a client, of no single message, that ends the run.

    The client recovers from all others by itself.
    """

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self._newest: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Take an error (`error_cb` of a client)."""
        code = error.code()
        if code == KafkaError._ALL_BROKERS_DOWN:
            # The one before it has the address that does not answer, and why.
            self.error = self._newest or error
        elif code in REFUSALS or error.fatal():
            self.error = error
        else:
            self._newest = error
