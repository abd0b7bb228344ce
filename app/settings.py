"""Every limit and choice of the gateway: its default, its bounds, and where a value comes from.

Order: defaults, then `tidegate.toml`, then `TIDEGATE_…` variables, then flags. Values with a
dimension carry their unit (`10s`, `8MiB`); plain numbers are counts.
"""

import difflib
import ipaddress
import logging
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tidegate.app.setting_kinds import (
    CountValue,
    DurationValue,
    EnvironmentText,
    FlagValue,
    FunctionNames,
    HostNames,
    Origins,
    SizeValue,
    TextValue,
    count_field,
    duration_field,
    size_field,
)

PREFIX = "TIDEGATE_"
CONFIG_FILE = "tidegate.toml"
MEMORY_ONLY = ":memory:"
CONFIG_STATUS = 78  # EX_CONFIG of sysexits.h, the exit status for a bad configuration

# Read by other parts of the product, so they are no misspelt settings.
OTHER_VARIABLES = frozenset({"TIDEGATE_GATEWAY", "TIDEGATE_REQUIRE_ALL"})

logger = logging.getLogger("tidegate.settings")


class SettingsInvalid(Exception):
    """The configuration cannot be used; `str()` is one readable line. The command exits 78."""


class Settings(BaseSettings):
    """The gateway's configuration, checked and frozen.

    Building one directly takes defaults and arguments alone; `load_settings` reads the file and
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


def load_settings(
    config: Path | None = None, *, overrides: Mapping[str, object] | None = None
) -> Settings:
    """Layer defaults, file, environment and flags into one `Settings`.

    Args:
        config: the TOML file; without it `tidegate.toml` in the working directory, if there.
        overrides: from flags, by setting name; None stands for a flag not given.

    Raises:
        SettingsInvalid: one line that names the source and the setting at fault.
    """
    path = config or Path(CONFIG_FILE)
    in_file = _file_values(path) if config or path.exists() else {}
    flags = {name: value for name, value in (overrides or {}).items() if value is not None}
    _check_each(in_file, lambda name: f"{path.name}: {name!a}")
    _check_each(in_environment := _environment_values(), variable_of)
    _check_each(flags, lambda name: f"--{name.replace('_', '-')}")
    try:
        return Settings(**in_file | in_environment | flags)
    except ValidationError as error:  # a rule about several settings, which names them
        raise SettingsInvalid(_reason(error.errors()[0]["msg"])) from None


def _file_values(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb"):  # the source passes over a file that cannot be read
            return TomlConfigSettingsSource(Settings, path)()
    except OSError as error:
        raise SettingsInvalid(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise SettingsInvalid(f"{path}: not valid TOML: {reason}") from None


def _environment_values() -> dict[str, Any]:
    """The variables that are settings.

    A misspelt setting is an error; a stranger that shares our prefix is only mentioned.
    """
    known = [variable_of(name) for name in SETTINGS]
    for variable in os.environ:
        if variable.startswith(PREFIX) and variable not in OTHER_VARIABLES.union(known):
            close = difflib.get_close_matches(variable, known, n=1, cutoff=0.85)
            if close:
                raise SettingsInvalid(f"{variable}: no such setting; did you mean {close[0]}?")
            logger.warning("%s is no setting of the gateway and is not used", variable)
    found = EnvSettingsSource(Settings, case_sensitive=False)()
    return {name: EnvironmentText(text) for name, text in found.items()}


def _check_each(values: Mapping[str, Any], called: Callable[[str], str]) -> None:
    """Whether each value of a source can be used, also one that another source goes before.

    What several settings are together is seen when all are there.
    """
    try:
        Settings(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if not first["loc"]:
            return
        name = str(first["loc"][0])
        match first["type"]:
            case "greater_than_equal":
                reason = f"expected at least {bound(name, 'ge')}"
            case "less_than_equal":
                reason = f"expected at most {bound(name, 'le')}"
            case "extra_forbidden" if isinstance(values[name], dict):
                reason = "no such setting; settings stand at the top level of the file, in no table"
            case "extra_forbidden":
                close = difflib.get_close_matches(name.lower(), SETTINGS, n=1)
                reason = "no such setting" + (f"; did you mean {close[0]}?" if close else "")
            case _:
                reason = _reason(first["msg"])
        raise SettingsInvalid(f"{called(name)}: {reason}") from None


def _reason(message: str) -> str:
    return message.removeprefix("Value error, ")
