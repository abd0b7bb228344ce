"""Arguments that several verbs take, and the client of the gateway that `--gateway` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tidegate.clients import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from tidegate.clients.gateway import Gateway

GATEWAY_VARIABLE = "TIDEGATE_GATEWAY"

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
gateway_option = click.option(
    "--gateway",
    metavar="URL",
    envvar=GATEWAY_VARIABLE,
    show_envvar=True,
    default=DEFAULT_ADDRESS,
    show_default=True,
    help="Address of the gateway.",
)
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


def connect(gateway: str, patience_s: float = 0.0) -> Gateway:
    """Return a client of the gateway at this address; it sends nothing yet.

    `patience_s`: how long a failed publish is retried.

    Raises:
        click.BadParameter: `gateway` is no http address.
    """
    from tidegate.clients.gateway import Gateway

    try:
        return Gateway(gateway, patience_s=patience_s)
    except ValueError as error:
        context = click.get_current_context(silent=True)
        # The fault is named where it was written: click itself names the flag also for a variable.
        source = context and context.get_parameter_source("gateway")
        named = GATEWAY_VARIABLE if source is ParameterSource.ENVIRONMENT else "--gateway"
        raise click.BadParameter(f"{error}.", ctx=context, param_hint=named) from None
