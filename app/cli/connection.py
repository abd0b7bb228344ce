"""The way from a command to its gateway."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from app.cli.errors import UsageInvalid

if TYPE_CHECKING:
    from clients.gateway import Gateway


def gateway_at(arguments: argparse.Namespace, patience_s: float = 0.0) -> Gateway:
    """A client of the gateway that `--gateway` names; nothing is sent yet.

    `patience_s`: how long what is published is sent again after it has failed.

    Raises:
        UsageInvalid: it is no address.
    """
    from clients.gateway import Gateway

    try:
        return Gateway(arguments.gateway, patience_s=patience_s)
    except ValueError as error:
        raise UsageInvalid(f"--gateway: {error}") from None
