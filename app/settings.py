"""Every limit and choice of the gateway: its default, its bounds and what it means.

Values with a dimension carry their unit (`10s`, `8MiB`); plain numbers are counts. The command line
reads values from file, environment and flags (`app/cli/settings.py`).
"""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tidegate.keys.text.duration import Duration
from tidegate.keys.text.size import parse_size

PREFIX = "TIDEGATE_"
MEMORY_ONLY = ":memory:"
CONFIG_STATUS = 78  # EX_CONFIG of sysexits.h, the exit status for a bad configuration


class SettingsInvalid(Exception):
    """The configuration cannot be used; `str()` is one readable line. The command exits 78."""


class EnvironmentText(str):
    """A value that came from the environment, where everything is text."""

    __slots__ = ()


def _duration(value: object) -> Duration:
    if isinstance(value, Duration):
        return value
    if isinstance(value, str):
        return Duration.parse(value)
    raise ValueError('expected a duration in quotes such as "10s"')


def _size(value: object) -> int:
    if isinstance(value, str):
        return parse_size(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError('expected a size in quotes such as "8MiB", or a number of bytes')


def _count(value: object) -> int:
    if isinstance(value, EnvironmentText) and re.fullmatch("[0-9]{1,18}", value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("expected a whole number")


def _flag(value: object) -> bool:
    if isinstance(value, EnvironmentText) and value in {"true", "false", "1", "0"}:
        return value in {"true", "1"}
    if isinstance(value, bool):
        return value
    raise ValueError("expected true or false")


def _text(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str) and value:
        return str(value)
    raise ValueError("expected a text that is not empty")


def _names(value: object, pattern: str, expected: str) -> tuple[str, ...]:
    if isinstance(value, EnvironmentText):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError(expected)
    if not all(isinstance(name, str) and re.fullmatch(pattern, name, re.ASCII) for name in value):
        raise ValueError(expected)
    return tuple(value)


def _host_names(value: object) -> tuple[str, ...]:
    expected = 'expected a list of host names such as ["gateway.example"]'
    return tuple(name.lower() for name in _names(value, r"(?i:[a-z0-9.:_-]+)", expected))


def _origins(value: object) -> tuple[str, ...]:
    expected = 'expected a list of origins such as ["https://desk.example"]'
    pattern = r"(?i:https?://[a-z0-9._\[\]:-]+)"
    return tuple(origin.lower() for origin in _names(value, pattern, expected))


def _function_names(value: object) -> tuple[str, ...]:
    expected = 'expected a list of functions such as ["package.module:function"]'
    return _names(value, r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", expected)


DurationValue = Annotated[Duration, BeforeValidator(_duration)]
SizeValue = Annotated[int, BeforeValidator(_size)]
CountValue = Annotated[int, BeforeValidator(_count)]
FlagValue = Annotated[bool, BeforeValidator(_flag)]
TextValue = Annotated[str, BeforeValidator(_text)]
HostNames = Annotated[tuple[str, ...], BeforeValidator(_host_names)]
Origins = Annotated[tuple[str, ...], BeforeValidator(_origins)]
FunctionNames = Annotated[tuple[str, ...], BeforeValidator(_function_names)]


def duration_field(default: str, meaning: str, least: str = "1ms", most: str = "1d") -> Any:
    """A setting that is a duration, within bounds."""
    return Field(
        default=Duration.parse(default),
        ge=Duration.parse(least),
        le=Duration.parse(most),
        description=meaning,
    )


def size_field(default: str, meaning: str, least: str = "1KiB", most: str = "4GiB") -> Any:
    """A setting that is a number of bytes, within bounds."""
    return Field(
        default=parse_size(default), ge=parse_size(least), le=parse_size(most), description=meaning
    )


def count_field(default: int, meaning: str, least: int = 1, most: int = 1_000_000_000) -> Any:
    """A setting that is a plain number, within bounds."""
    return Field(default=default, ge=least, le=most, description=meaning)


class Settings(BaseSettings):
    """The gateway's configuration, checked and frozen.

    Building one directly takes defaults and arguments alone; the command line reads the file and
    the environment too. Outside, `store_dir` is called `data`.
    """

    # Case: of `port` and `PORT` in a file, the source would drop one without a word.
    # Decoding: what a list looks like in a variable is for its kind to say; it is no JSON.
    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        case_sensitive=True,
        env_prefix=PREFIX,
        env_prefix_target="all",
        enable_decoding=False,
    )

    # Where it listens and keeps things
    host: TextValue = Field(
        default="127.0.0.1",
        description="Address to listen on; other than loopback needs `insecure`.",
    )
    port: CountValue = count_field(
        8080, "Port to listen on; 0 takes a free one.", least=0, most=65535
    )
    allowed_hosts: HostNames = Field(
        default=(),
        description="Names other than loopback that a request's `Host` may have (421 otherwise); "
        "in the environment separated by commas.",
    )
    allowed_origins: Origins = Field(
        default=(),
        description="Origins such as `https://desk.example` whose pages may write (403 otherwise), "
        "beside the one that `Host` tells; in the environment separated by commas.",
    )
    insecure: FlagValue = Field(
        default=False, description="Serve without authentication on an address others can reach."
    )
    store_dir: TextValue = Field(
        default="./tidegate-data",
        alias="data",
        description="Folder of the embedded store; `:memory:` keeps nothing.",
    )
    durability: Literal["process", "power"] = Field(
        default="process",
        description="What is acknowledged as persisted survives the death of the process, or the "
        "loss of power: process or power.",
    )
    redis: TextValue | None = Field(
        default=None,
        description="Address of the Redis or Valkey that gateways share: `redis://`, `rediss://` "
        "or `unix://`. Topics and messages are kept there, in append-only files, not in `data`.",
    )
    redis_prefix: TextValue = Field(
        default="tidegate", description="What the names of all keys in that Redis begin with."
    )
    workers: CountValue = count_field(
        1, "Gateways that `serve` runs at its address, each a process; above 1 needs `redis`.",
        most=256,
    )  # fmt: skip
    topics: TextValue | None = Field(
        default=None,
        description="Folder of `.toml` files with definitions of topics, applied at start.",
    )
    archive: TextValue | None = Field(
        default=None,
        description="Folder in which `tidegate pipeline journal` archives topics: what a journal "
        "does not reach any more is read there.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is logged: debug, info, warning or error."
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="How lines are logged: text, or json (one object a line, with the event's "
        "name and figures as members).",
    )
    log_requests: FlagValue = Field(
        default=False, description="Log a line for each request, without its query and body."
    )
    metrics_topics_max: CountValue = count_field(
        100,
        "Topics with a label of their own in `/metrics`, the first by name; the others are added "
        "up under one.",
        least=0,
        most=10_000,
    )

    # Topics and publishing
    auto_create_topics: FlagValue = Field(
        default=True, description="Publishing to an unknown topic creates a plain one."
    )
    topics_max: CountValue = count_field(10_000, "Topics.")
    topic_keys_max: CountValue = count_field(1_000_000, "Keys of a topic's state of the world.")
    journal_messages_max: CountValue = count_field(
        100_000, "Messages a topic's journal keeps where its definition says nothing.", least=0
    )
    mergers: FunctionNames = Field(
        default=(),
        description="Functions `package.module:function` that topics may name as `merge` or "
        "`match`, imported at start; in the environment separated by commas.",
    )
    message_bytes_max: SizeValue = size_field("1MiB", "Size of one message (413 above it).")
    request_bytes_max: SizeValue = size_field("64MiB", "Size of one request's body (413).")
    request_messages_max: CountValue = count_field(
        100_000, "Messages in one request (413 above it)."
    )

    stages_max: CountValue = count_field(
        10_000, "Stages of a topic that wait for their commit (429 above it)."
    )
    staged_bytes_max: SizeValue = size_field(
        "1GiB", "Bytes in the stages of a topic (429 above it).", most="1024GiB"
    )
    retry_keys_max: CountValue = count_field(
        1_000_000, "`Idempotency-Key`s of a topic within 24 hours (429 above it)."
    )
    producers_max: CountValue = count_field(
        100_000, "Names of numbered producers that a topic has had (429 above it)."
    )

    # Subscribing
    sessions_max: CountValue = count_field(10_000, "Sessions open at once.")
    session_subscriptions_max: CountValue = count_field(
        256,
        "Subscriptions of a session, each topic of a pattern being one (429 above it).",
        most=10_000,
    )
    options_characters_max: CountValue = count_field(
        4096, "Characters of an options string or a filter."
    )
    default_pace: Literal["batch", "key"] = Field(
        default="batch", description="Pace of an interval whose options name none: batch or key."
    )
    heartbeat: DurationValue = duration_field(
        "15s", "A stream without output for so long gets a comment.", least="100ms", most="1h"
    )
    session_retention: DurationValue = duration_field(
        "60s",
        "A session opened with POST is kept for so long after its connection is lost; of one that "
        "has ended it is known for as long how it did.",
        least="0s",
    )
    queue_messages_max: CountValue = count_field(
        10_000, "Messages a session's queue holds before its policy applies."
    )
    queue_bytes_max: SizeValue = size_field(
        "8MiB", "Bytes a session's queue holds before its policy applies."
    )
    write_timeout: DurationValue = duration_field(
        "10s", "A connection that takes nothing for so long is closed.", least="100ms", most="1h"
    )

    # The connection
    connections_max: CountValue = count_field(
        12_000,
        "Connections open at once, or fewer if file descriptors are; beyond it only `/healthz`, "
        "`/readyz` and `/metrics` answer, others get 429, streams an `error` event.",
    )
    connections_per_address_max: CountValue = count_field(
        0, "Of these from one address (IPv6: a /64); 0 for any, as behind a proxy.", least=0
    )
    header_bytes_max: SizeValue = size_field(
        "16KiB", "Size of a request's header (431 above it).", least="256B", most="1MiB"
    )
    header_count_max: CountValue = count_field(
        100, "Fields in a request's header (431 above it).", most=10_000
    )
    uri_bytes_max: SizeValue = size_field(
        "8KiB", "Size of a request's target (414 above it).", least="64B", most="1MiB"
    )
    header_deadline: DurationValue = duration_field(
        "10s", "A request's header must be complete within (408).", most="1h"
    )
    body_deadline: DurationValue = duration_field(
        "30s", "A request's body must be complete within (408).", most="1h"
    )
    keep_alive: DurationValue = duration_field(
        "15s", "A connection without a request is closed after.", most="1h"
    )
    write_buffer_bytes_max: SizeValue = size_field(
        "16KiB", "Bytes held for a connection before its writer waits.", most="16MiB"
    )
    notsent_lowat_bytes: SizeValue = size_field(
        "16KiB", "Unsent bytes the kernel takes for a connection (TCP_NOTSENT_LOWAT).", most="16MiB"
    )
    tcp_keepalive: DurationValue = duration_field(
        "20s", "A silent peer that answers no probe for so long is gone.", least="1s", most="1h"
    )
    backlog: CountValue = count_field(2048, "Connections waiting to be accepted.", most=65535)
    shutdown_grace: DurationValue = duration_field(
        "1s", "A stream has so long to take its `goodbye` before it is cut.", most="10m"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments alone: `load_settings` asks each source, to name the one at fault."""
        return (init_settings,)

    @model_validator(mode="after")
    def _refuse_open_doors(self) -> Self:
        if not self.insecure and not is_loopback(self.host):
            raise ValueError(
                "host is not a loopback address and there is no authentication yet: "
                "listen on 127.0.0.1, or say --insecure"
            )
        return self

    @property
    def keeps_nothing(self) -> bool:
        """True when nothing is to survive the process."""
        return self.store_dir == MEMORY_ONLY and self.redis is None


def is_loopback(host: str) -> bool:
    """True for `localhost` and addresses that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


SETTINGS = {field.alias or name: field for name, field in Settings.model_fields.items()}
"""Each setting by its name outside, which is that in the file."""


def bound(name: str, side: Literal["ge", "le"]) -> Any:
    """The least or the greatest value of the setting `name`, or None."""
    rules = SETTINGS[name].metadata
    return next((getattr(rule, side) for rule in rules if hasattr(rule, side)), None)


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()
