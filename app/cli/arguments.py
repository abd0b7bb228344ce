"""Arguments that several verbs take, and the client of the gateway that `--gateway` names."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from tidegate.clients import DEFAULT_ADDRESS

Verb = TypeVar("Verb", bound=Callable[..., Any])

if TYPE_CHECKING:
    from tidegate.clients.gateway import Gateway
    from tidegate.clients.token import Token

GATEWAY_VARIABLE = "TIDEGATE_GATEWAY"
TOKEN_VARIABLE = "TIDEGATE_TOKEN"
TOKEN_FILE_VARIABLE = "TIDEGATE_TOKEN_FILE"

PORT = click.IntRange(0, 65535)
"""A TCP port; 0 stands for a free one."""

COUNT = click.IntRange(min=1)
"""A whole number above 0."""


class Seconds(click.ParamType[float]):
    """A duration with its unit, such as `10s` or `500ms`; its value is in seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert the text to seconds."""
        # Imported late, like the client below: `--help` and completion wait for every import.
        from tidegate.keys.text.duration import SECOND, parse_duration

        if isinstance(value, float):  # click converts a converted default once more
            return value
        try:
            return parse_duration(str(value)) / SECOND
        except ValueError as error:
            self.fail(f"{error}, not {value!r}.", param, ctx)


SECONDS = Seconds()

topic_argument = click.argument("topic")


def _keep_token_file(context: click.Context, param: click.Parameter, file: str | None) -> None:
    # Kept in the command's context: every verb has the option, and only `connect` uses it.
    context.meta[TOKEN_FILE_VARIABLE] = file


_address_option = click.option(
    "--gateway",
    metavar="URL",
    envvar=GATEWAY_VARIABLE,
    show_envvar=True,
    default=DEFAULT_ADDRESS,
    show_default=True,
    help="Address of the gateway, or its name in ~/.config/tidegate/contexts.toml.",
)
_token_option = click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    envvar=TOKEN_FILE_VARIABLE,
    show_envvar=True,
    expose_value=False,
    callback=_keep_token_file,
    help="File with the token; TIDEGATE_TOKEN takes precedence.",
)


def gateway_option(verb: Verb) -> Verb:
    """Give a verb the options that say which gateway is asked, and with which token."""
    return _address_option(_token_option(verb))


key_option = click.option(
    "--key", "key_paths", metavar="PATHS", multiple=True, help="Fields of the key: /sym,/venue."
)


def paths_of(texts: Sequence[str]) -> list[str]:
    """Return the paths of the option `--key`, which may be repeated."""
    paths = (path.strip() for text in texts for path in text.split(","))
    return [path for path in paths if path]


for_option = click.option(
    "--for", "seconds_max", type=SECONDS, metavar="TIME", help="Stop after this time, such as 10s."
)
filter_option = click.option(
    "--filter",
    "filter_text",
    metavar="TEXT",
    help="Only messages that match, such as '/price > 100'.",
)
order_by_option = click.option(
    "--order-by", metavar="FIELDS", help="Order of rows, such as '/price DESC'."
)


@dataclass(frozen=True, slots=True)
class GatewayContext:
    """A gateway of the contexts file: one address or several, and the file of its token."""

    gateway: str | list[str]
    token_file: str | None = None


def connect(gateway: str, patience_s: float = 0.0) -> Gateway:
    """Return a client of a gateway, by its address or its name; it sends nothing yet.

    `patience_s`: how long a failed publish is retried.

    Raises:
        click.BadParameter: `gateway` is no http address and no known name.
    """
    from tidegate.clients.gateway import Gateway

    context = click.get_current_context(silent=True)
    # Name the place of the faulty value: click would name the flag even for the variable.
    source = context and context.get_parameter_source("gateway")
    named = GATEWAY_VARIABLE if source is ParameterSource.ENVIRONMENT else "--gateway"
    try:
        chosen = _named_context(gateway) or GatewayContext(gateway)
        token = _token(context, chosen.token_file)
        return Gateway(chosen.gateway, patience_s=patience_s, token=token)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", ctx=context, param_hint=named) from None


def _named_context(name: str) -> GatewayContext | None:
    """Return the gateway of this name; None for an address, or without a file of names.

    Raises:
        ValueError: the file cannot be read, or does not have the name.
    """
    if "/" in name or ":" in name:
        return None
    import msgspec

    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    file = Path(folder, "tidegate", "contexts.toml").expanduser()
    if not file.is_file():
        return None
    try:
        contexts = msgspec.toml.decode(file.read_bytes(), type=dict[str, GatewayContext])
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{file}: {error}") from None
    if name not in contexts:
        raise ValueError(f"{file} has no {name!r}, only {', '.join(sorted(contexts)) or 'nothing'}")
    return contexts[name]


def _token(context: click.Context | None, file_by_name: str | None) -> Token:
    """Return the token of this command: that of the variable, else that of a file.

    `file_by_name`: the token file that the contexts file names; the option takes precedence.

    Raises:
        click.BadParameter: the variable holds none.
    """
    from tidegate.clients.token import Token

    # Of a command without the option the variable counts all the same.
    named = os.environ.get(TOKEN_FILE_VARIABLE) or None
    file = (context and context.meta.get(TOKEN_FILE_VARIABLE)) or file_by_name or named
    try:
        return Token(os.environ.get(TOKEN_VARIABLE) or None, file)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", ctx=context, param_hint=TOKEN_VARIABLE) from None
