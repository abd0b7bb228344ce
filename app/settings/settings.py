"""Every limit and choice of the gateway: its default, its bounds and what it means.

Values with a dimension carry their unit (`10s`, `8MiB`); plain numbers are counts. The command line
reads values from file, environment and flags (`app/cli/settings.py`).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tidegate.app.settings.checks import (
    Disagreement,
    check_authentication,
    check_login,
    check_needs,
)
from tidegate.app.settings.kinds import (
    AddressValue,
    CountValue,
    DurationValue,
    FlagValue,
    FunctionNames,
    HostNames,
    Networks,
    Origins,
    SizeValue,
    TextValue,
    count_field,
    duration_field,
    size_field,
)

PREFIX = "TIDEGATE_"
MEMORY_ONLY = ":memory:"
CONFIG_STATUS = 78  # EX_CONFIG of sysexits.h, the exit status for a bad configuration
AWAY_STATUS = 3  # the exit status where Redis does not answer: another start may find it


class SettingsInvalid(Exception):
    """The configuration cannot be used; `str()` is one readable line. The command exits 78."""


class SettingsDisagree(ValueError):
    """Each setting is valid, and some do not fit together.

    Args:
        settings: all of them.
        found: what does not fit.
    """

    def __init__(self, settings: "Settings", found: Sequence[Disagreement]) -> None:
        super().__init__("; ".join(each.reason for each in found))
        self.settings = settings
        self.found = found


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
    host: AddressValue = Field(
        default="127.0.0.1",
        description="Address to listen on, `::` for all of both families; beyond loopback it needs "
        "`auth_keys` or `insecure`.",
    )
    port: CountValue = count_field(8080, "Port to listen on; 0: a free one.", least=0, most=65535)
    allowed_hosts: HostNames = Field(
        default=(),
        description="Names besides loopback that a request's `Host` may have, with any port (421 "
        "otherwise); in the environment separated by commas.",
    )
    allowed_origins: Origins = Field(
        default=(),
        description="Origins such as `https://desk.example` whose pages may read and write (403 "
        "otherwise), besides the one in `Host`; `*` alone: every page, without cookies. In the "
        "environment separated by commas.",
    )
    trusted_proxies: Networks = Field(
        default=(),
        description="Addresses and networks of proxies whose `X-Forwarded-For`, `-Proto` and "
        "`-Host` are believed; in the environment separated by commas.",
    )
    tls_cert: TextValue | None = Field(
        default=None,
        description="File of the gateway's certificate and its chain, in PEM; it then speaks TLS. "
        "Read again at SIGHUP.",
    )
    tls_key: TextValue | None = Field(
        default=None, description="File of the certificate's key, if not in `tls_cert`; in PEM."
    )
    tls_client_ca: TextValue | None = Field(
        default=None,
        description="PEM file: authorities of the clients in `auth_policy`. SIGHUP reads it again.",
    )
    tls_client_auth: Literal["optional", "required"] = Field(
        default="optional",
        description="A client's certificate, with `tls_client_ca` (optional or required).",
    )
    hsts: DurationValue | None = Field(
        default=None,
        description="Time of `Strict-Transport-Security`, sent over https alone; `0s` ends it.",
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
        description="TOML file of grants by the values of a claim and by client certificates; read "
        "again when it changes.",
    )
    auth_oidc_client_id: TextValue | None = Field(
        default=None,
        description="The gateway's name at an identity provider whose address is `auth_issuer`: "
        "browsers log in there, from `/v1/login/start` on.",
    )
    auth_oidc_secret_file: TextValue | None = Field(
        default=None,
        description="File of the client's secret, read at each login; a public client has none.",
    )
    auth_oidc_scope: TextValue = Field(
        default="openid",
        description="What the login asks the provider for, separated by spaces; `openid` is one.",
    )
    auth_oidc_logout: FlagValue = Field(
        default=False, description="`Log out` goes on to the provider, which leads back to `/`."
    )
    store_dir: TextValue = Field(
        default="./tidegate-data",
        alias="data",
        description="Folder of the SQLite store; `:memory:` stores nothing on disk.",
    )
    durability: Literal["process", "power"] = Field(
        default="process",
        description="What a persisted message survives: death of the process, or loss of power.",
    )
    redis: TextValue | None = Field(
        default=None,
        repr=False,  # it may hold a password
        description="Address of the Redis or Valkey that gateways share: `redis://`, `rediss://`, "
        "`unix://`, or `redis+sentinel://` with the Sentinels that know it. Topics and messages "
        "are kept there, in append-only files, not in `data`.",
    )
    redis_prefix: TextValue = Field(default="tidegate", description="Prefix of all keys there.")
    redis_replicas: CountValue = count_field(
        0,
        "Replicas of that Redis that must have a message before it counts as persisted.",
        least=0,
        most=100,
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
    audit_log: TextValue | None = Field(
        default=None,
        description="File to which administration and refusals are appended, one JSON object a "
        "line; they are also in the topic `tidegate.audit` ([security.md](security.md)).",
    )
    log_requests: FlagValue = Field(
        default=False, description="Log a line for each request, without its query and body."
    )
    loop_held_max: DurationValue = duration_field(
        "50ms",
        "An iteration of the event loop that takes longer is counted, and logged with what it did.",
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
    journal_bytes_max: SizeValue = size_field(
        "1GiB", "Bytes in a topic's journal, unless its definition sets `history`.", most="1024GiB"
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
        "1GiB",
        "Bytes in the stages of all topics; with `redis` of each (429 above).",
        most="1024GiB",
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
    subscription_keys_max: CountValue = count_field(
        100_000,
        "Keys that wait for a subscription by a conflation key other than the topic's; beyond it "
        "the subscription ends with `BACK_PRESSURE`.",
    )
    options_characters_max: CountValue = count_field(
        4096, "Characters of an options string or of a filter."
    )
    default_pace: Literal["batch", "key"] = Field(
        default="batch",
        description="Pace of an interval, unless its options set one: batch or key.",
    )
    heartbeat: DurationValue = duration_field(
        "15s",
        "A stream without output for this long gets a comment. Clients take a silence of 2.5 "
        "heartbeats for a lost connection.",
        least="100ms",
        most="1h",
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

    # Limits of all clients together, and of each subject (429 above)
    memory_bytes_max: SizeValue = size_field(
        "0B",
        "Memory of the process above which publishing, definitions, sessions and subscriptions "
        "are refused; 0 for three quarters of what the machine, the container or the unit has, "
        "shared by the workers.",
        least="0B",
        most="1024GiB",
    )
    subscriptions_max: CountValue = count_field(
        1_000_000, "Subscriptions of all sessions; each topic of a pattern counts as one."
    )
    lanes_max: CountValue = count_field(20_000, "Different lanes of all subscriptions.")
    topic_lanes_max: CountValue = count_field(
        500,
        "Different lanes of a topic that one message may reach; filters that ask a field for "
        "unequal values are not reached together.",
    )
    publish_messages_max: CountValue = count_field(
        0, "Messages published a second by all; 0 for any number.", least=0
    )
    publish_bytes_max: SizeValue = size_field(
        "0B", "Bytes published a second by all; 0 for any number.", least="0B"
    )
    journal_reads_max: CountValue = count_field(64, "Answers with a journal that are under way.")
    subject_sessions_max: CountValue = count_field(
        1_000, "Sessions of a subject; 0 for any number, as in the settings below.", least=0
    )
    subject_subscriptions_max: CountValue = count_field(
        10_000, "Subscriptions of a subject.", least=0
    )
    subject_lanes_max: CountValue = count_field(
        50, "Different lanes of a subject's subscriptions.", least=0
    )
    subject_topics_max: CountValue = count_field(
        1_000, "Topics that a subject has created since the start and not deleted.", least=0
    )
    subject_publish_messages_max: CountValue = count_field(
        0, "Messages that a subject publishes a second.", least=0
    )
    subject_publish_bytes_max: SizeValue = size_field(
        "0B", "Bytes that a subject publishes a second.", least="0B"
    )
    subject_journal_reads_max: CountValue = count_field(
        8, "Answers with a journal that are under way for a subject.", least=0
    )

    # The connection
    connections_max: CountValue = count_field(
        12_000,
        "Connections open at once, or fewer if the process has fewer file descriptors; beyond it "
        "only `/healthz`, `/readyz` and `/metrics` answer; others get 429, streams a `refused`.",
    )
    connections_per_address_max: CountValue = count_field(
        0,
        "Connections from one address (IPv6: a /64); 0 for no limit, as behind a proxy that is not "
        "in `trusted_proxies`.",
        least=0,
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
    def _check_together(self) -> Self:
        if found := list(self._disagreements()):
            raise SettingsDisagree(self, found)
        return self

    def _disagreements(self) -> Iterator[Disagreement]:
        yield from check_authentication(self.host, insecure=self.insecure, auth_keys=self.auth_keys)
        yield from check_needs(self._is_set)
        if self.keeps_nothing and self._is_set("durability"):
            reason = f"durability has no effect, as data is {MEMORY_ONLY}"
            yield Disagreement(("durability", "data"), reason)
        yield from check_login(
            self.auth_oidc_client_id, issuer=self.auth_issuer, scope=self.auth_oidc_scope
        )

    def _is_set(self, name: str) -> bool:
        """Return whether a setting differs from its default."""
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    @property
    def keeps_nothing(self) -> bool:
        """True if nothing survives the process."""
        return self.store_dir == MEMORY_ONLY and self.redis is None


# By their names outside, which are those in the file.
SETTINGS = {field.alias or name: field for name, field in Settings.model_fields.items()}
