"""Arguments that several verbs take, and a parser whose complaints are one line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from app.cli.errors import UsageInvalid

DEFAULT_GATEWAY = "http://127.0.0.1:8080"


class Parser(argparse.ArgumentParser):
    """Raises UsageInvalid where argparse would print its usage and exit.

    Options may stand between positionals, as in `publish TOPIC --rate 100 FILE`.
    """

    _is_intermixed = False  # the parts are being parsed, each by itself

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments in one line."""
        raise UsageInvalid(f"{message} (see {self.prog} --help)")

    def parse_known_args(  # type: ignore[override]  # argparse's own is overloaded
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse a verb's arguments; of what stands before the verb no order is left open."""
        wholes = (argparse.PARSER, argparse.REMAINDER)
        if self._is_intermixed or any(it.nargs in wholes for it in self._get_positional_actions()):
            return super().parse_known_args(args, namespace)
        self._is_intermixed = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixed = False


Verbs = "argparse._SubParsersAction[Parser]"


def add_gateway(parser: argparse.ArgumentParser) -> None:
    """`--gateway URL`."""
    parser.add_argument(
        "--gateway",
        default=DEFAULT_GATEWAY,
        metavar="URL",
        help="address of the gateway (%(default)s)",
    )


def add_topic(parser: argparse.ArgumentParser) -> None:
    """The topic a verb is about."""
    parser.add_argument("topic", metavar="TOPIC", help="name of the topic")


def seconds(text: str) -> float:
    """A duration with its unit, such as `10s` or `500ms`, in seconds."""
    from conflation.duration import SECOND, parse_duration

    try:
        return parse_duration(text) / SECOND
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, not {text!r}") from None


def count(text: str) -> int:
    """A whole number above 0."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**18):
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, not {text!r}")
    return int(text)


def port(text: str) -> int:
    """A TCP port; 0 stands for a free one."""
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, not {text!r}")
    return int(text)
