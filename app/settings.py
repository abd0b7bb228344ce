"""Every limit and choice of the gateway: its default, its bounds and what it means.

Values with a dimension carry their unit (`10s`, `8MiB`); plain numbers are counts. The command line
reads values from file, environment and flags (`app/cli/settings.py`).
"""

import contextlib
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
    """A value from the environment, where numbers and lists are text."""

    __slots__ = ()


def _duration(value: object) -> Duration:
    if isinstance(value, Duration | str):
        return value if isinstance(value, Duration) else Duration.parse(value)
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
    raise ValueError("expected a text, not empty")


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
    expected = 'expected a list of origins such as ["https://desk.example"], or ["*"] alone'
    pattern = r"\*|(?i:https?://[a-z0-9._\[\]:-]+)"
    origins = tuple(origin.lower() for origin in _names(value, pattern, expected))
    if "*" in origins and len(origins) > 1:
        # Beside `*` the others could only mean more, such as credentials, which `*` cannot have.
        raise ValueError(expected)
    return origins


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
    """Return the field of a duration within bounds."""
    return Field(
        default=Duration.parse(default),
        ge=Duration.parse(least),
        le=Duration.parse(most),
        description=meaning,
    )


def size_field(default: str, meaning: str, least: str = "1KiB", most: str = "4GiB") -> Any:
    """Return the field of a number of bytes within bounds."""
    return Field(
        default=parse_size(default), ge=parse_size(least), le=parse_size(most), description=meaning
    )


def count_field(default: int, meaning: str, least: int = 1, most: int = 1_000_000_000) -> Any:
    """Return the field of a plain number within bounds."""
    return Field(default=default, ge=least, le=most, description=meaning)


class Settings(BaseSettings):
    """The gateway's configuration, checked and frozen.

    Building one directly takes defaults and arguments alone; the command line reads the file and
    the environment too. Outside, `store_dir` is called `data`.
    """

    # Case: given `port` and `PORT` in a file, pydantic-settings would drop one silently.
    # Prefix: a setting with an alias (`data`) has it in its variable, too.
    # Decoding: each kind parses its own lists in a variable; they are not JSON.
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
        description="Address to listen on; beyond loopback it needs `auth_keys` or `insecure`.",
    )
    port: CountValue = count_field(
        8080, "Port to listen on; 0 for a free one.", least=0, most=65535
    )
    allowed_hosts: HostNames = Field(
        default=(),
        description="Names besides loopback that a request's `Host` may have (421 otherwise); in "
        "the environment separated by commas.",
    )
    allowed_origins: Origins = Field(
        default=(),
        description="Origins such as `https://desk.example` whose pages may read and write (403 "
        "otherwise), besides the one in `Host`; `*` alone: every page, without cookies. In the "
        "environment separated by commas.",
    )
    insecure: FlagValue = Field(
        default=False, description="Serve without authentication on an address others can reach."
    )
    auth_keys: TextValue | None = Field(
        default=None,
        description="The issuer's keys, a JWK Set: a file or an https address. Everything but "
        "health, pages and the login then needs a token ([security.md](security.md)).",
    )
    auth_issuer: TextValue = Field(default="tidegate", description="The `iss` of tokens.")
    auth_audience: TextValue = Field(default="tidegate", description="The `aud` of tokens.")
    auth_policy: TextValue | None = Field(
        default=None,
        description="TOML file of grants by the values of a claim; read again when it changes.",
    )
    store_dir: TextValue = Field(
        default="./tidegate-data",
        alias="data",
        description="Folder of the embedded store; `:memory:` stores nothing on disk.",
    )
    durability: Literal["process", "power"] = Field(
        default="process",
        description="What a persisted message survives: the death of the process, or a loss of "
        "power (process or power).",
    )
    redis: TextValue | None = Field(
        default=None,
        description="Address of the Redis or Valkey that gateways share: `redis://`, `rediss://` "
        "or `unix://`. Topics and messages are kept there, in append-only files, not in `data`.",
    )
    redis_prefix: TextValue = Field(
        default="tidegate", description="Prefix of all keys in that Redis."
    )
    workers: CountValue = count_field(
        1, "Gateways that `serve` runs at its address, one process each; above 1 needs `redis`.",
        most=256,
    )  # fmt: skip
    topics: TextValue | None = Field(
        default=None,
        description="Folder of `.toml` files with topic definitions, applied at start.",
    )
    archive: TextValue | None = Field(
        default=None,
        description="Folder in which `tidegate pipeline journal` archives topics; the gateway "
        "reads there what its journal no longer reaches.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged: debug, info, warning or error."
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="Format of the log: text, or json (one object a line, with the event's name "
        "and figures as members).",
    )
    log_requests: FlagValue = Field(
        default=False, description="Log a line for each request, without its query and body."
    )
    loop_held_max: DurationValue = duration_field(
        "50ms",
        "A turn of the event loop that takes longer is counted, and logged with what it did.",
        most="1h",
    )
    metrics_topics_max: CountValue = count_field(
        100,
        "Topics with a label of their own in `/metrics`, the first by name; the rest are summed up "
        "under one label.",
        least=0,
        most=10_000,
    )

    # Topics and publishing
    auto_create_topics: FlagValue = Field(
        default=True,
        description="Publishing to an unknown topic creates it, with default settings. With "
        "`auth_keys` the default is false.",
    )
    topics_max: CountValue = count_field(10_000, "Number of topics.")
    topic_keys_max: CountValue = count_field(
        1_000_000, "Keys in the state of the world of one topic."
    )
    journal_messages_max: CountValue = count_field(
        100_000, "Messages in a topic's journal, unless its definition sets `history`.", least=0
    )
    mergers: FunctionNames = Field(
        default=(),
        description="Functions `package.module:function` that topics may use as `merge` or "
        "`match`, imported at start; in the environment separated by commas.",
    )
    message_bytes_max: SizeValue = size_field("1MiB", "Size of one message (413 above).")
    request_bytes_max: SizeValue = size_field("64MiB", "Size of a request's body (413 above).")
    request_messages_max: CountValue = count_field(100_000, "Messages in one request (413 above).")

    stages_max: CountValue = count_field(
        10_000, "Stages of a topic that wait for a commit (429 above)."
    )
    staged_bytes_max: SizeValue = size_field(
        "1GiB", "Bytes in the stages of a topic (429 above).", most="1024GiB"
    )
    retry_keys_max: CountValue = count_field(
        1_000_000, "`Idempotency-Key`s of a topic within 24 hours (429 above)."
    )
    producers_max: CountValue = count_field(
        100_000, "Numbered producers that a topic remembers by name (429 above)."
    )

    # Subscribing
    sessions_max: CountValue = count_field(10_000, "Sessions open at once.")
    session_subscriptions_max: CountValue = count_field(
        256,
        "Subscriptions of a session; each topic of a pattern counts as one (429 above).",
        most=10_000,
    )
    options_characters_max: CountValue = count_field(
        4096, "Characters of an options string or of a filter."
    )
    default_pace: Literal["batch", "key"] = Field(
        default="batch",
        description="Pace of an interval, unless its options set one: batch or key.",
    )
    heartbeat: DurationValue = duration_field(
        "15s", "A stream without output for this long gets a comment.", least="100ms", most="1h"
    )
    session_retention: DurationValue = duration_field(
        "60s",
        "A session opened with POST is kept for this long after its connection is lost; the reason "
        "why a session ended is kept as long.",
        least="0s",
    )
    queue_messages_max: CountValue = count_field(
        10_000, "Messages in a session's queue before its policy applies."
    )
    queue_bytes_max: SizeValue = size_field(
        "8MiB", "Bytes in a session's queue before its policy applies."
    )
    write_timeout: DurationValue = duration_field(
        "10s",
        "A connection that accepts no bytes for this long is closed.",
        least="100ms",
        most="1h",
    )

    # The connection
    connections_max: CountValue = count_field(
        12_000,
        "Connections open at once, or fewer if the process has fewer file descriptors; beyond it "
        "only `/healthz`, `/readyz` and `/metrics` answer; others get 429, streams a `refused`.",
    )
    connections_per_address_max: CountValue = count_field(
        0, "Connections from one address (IPv6: a /64); 0 for no limit, as behind a proxy.", least=0
    )
    header_bytes_max: SizeValue = size_field(
        "16KiB", "Size of a request's header (431 above).", least="256B", most="1MiB"
    )
    header_count_max: CountValue = count_field(
        100, "Fields in a request's header (431 above).", most=10_000
    )
    uri_bytes_max: SizeValue = size_field(
        "8KiB", "Size of a request's target (414 above).", least="64B", most="1MiB"
    )
    header_deadline: DurationValue = duration_field(
        "10s", "Time for a request's header to be complete (408 after).", most="1h"
    )
    body_deadline: DurationValue = duration_field(
        "30s", "Time for a request's body to be complete (408 after).", most="1h"
    )
    keep_alive: DurationValue = duration_field(
        "15s", "A connection without a request is closed after this time.", most="1h"
    )
    write_buffer_bytes_max: SizeValue = size_field(
        "16KiB", "Bytes buffered for a connection before its writer waits.", most="16MiB"
    )
    notsent_lowat_bytes: SizeValue = size_field(
        "16KiB",
        "Unsent bytes that the kernel buffers per connection (TCP_NOTSENT_LOWAT).",
        most="16MiB",
    )
    tcp_keepalive: DurationValue = duration_field(
        "20s", "A silent peer that answers no probe for this long is gone.", least="1s", most="1h"
    )
    backlog: CountValue = count_field(2048, "Connections waiting to be accepted.", most=65535)
    shutdown_grace: DurationValue = duration_field(
        "1s", "Time for a stream to take its `goodbye` before it is cut.", most="10m"
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
        """Take arguments alone: the command line asks each source, so that it can name it."""
        return (init_settings,)

    @model_validator(mode="before")
    @classmethod
    def _create_no_topics_for_subjects(cls, values: Any) -> Any:
        # To write a topic is not to define one: that is `admin`.
        if isinstance(values, dict) and values.get("auth_keys") is not None:
            return {"auto_create_topics": False, **values}
        return values

    @model_validator(mode="after")
    def _require_authentication_or_loopback(self) -> Self:
        if self.auth_keys is None and not self.insecure and not is_loopback(self.host):
            raise ValueError(
                "host is not a loopback address, and there is no authentication: "
                "set auth_keys (--auth-keys), listen on 127.0.0.1, or set insecure (--insecure)"
            )
        if self.auth_policy is not None and self.auth_keys is None:
            raise ValueError("auth_policy grants to subjects, and needs auth_keys (--auth-keys)")
        return self

    @property
    def keeps_nothing(self) -> bool:
        """True if nothing survives the process."""
        return self.store_dir == MEMORY_ONLY and self.redis is None


def is_loopback(host: str) -> bool:
    """Return True for `localhost` and addresses that only this machine can reach."""
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


# By their names outside, which are those in the file.
SETTINGS = {field.alias or name: field for name, field in Settings.model_fields.items()}
