"""A connection to a gateway, whose refusals become errors of the pipeline."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidegate.clients import DEFAULT_ADDRESS
from tidegate.clients.errors import GatewayError, GatewayProblem, GatewayUnreachable
from tidegate.clients.gateway import Gateway
from tidegate.clients.retry import Retry
from tidegate.pipeline import errors

PATIENCE_S = 60.0
PATIENT = Retry(PATIENCE_S)
"""Every request of a stream may be repeated: stages and commits have names and numbers."""
AT_ONCE = Retry(0.0)
"""For callers that will ask again by themselves."""

GONE, TOO_MANY = 410, 429


def default_gateway() -> str:
    """Return the gateway to use where neither an option nor a definition file names one."""
    return os.environ.get("TIDEGATE_GATEWAY") or DEFAULT_ADDRESS


@contextmanager
def gateway_at(address: str, retry: Retry = PATIENT) -> Iterator[Gateway]:
    """Yield a gateway; what it refuses leaves the block as a `PipelineError`.

    Raises:
        UsageInvalid: the address is malformed.
    """
    try:
        gateway = Gateway(address, every=retry)
    except ValueError:  # do not show its text: it has the address, which may hold a password
        raise errors.UsageInvalid(
            f"the address of a gateway is such as {DEFAULT_ADDRESS}"
        ) from None
    with gateway, as_pipeline_errors(address):
        yield gateway


@contextmanager
def as_pipeline_errors(address: str) -> Iterator[None]:
    """Turn errors of the client into errors of the pipeline."""
    try:
        yield
    except GatewayError as error:
        raise pipeline_error(error, address) from error


def pipeline_error(error: GatewayError, address: str) -> errors.PipelineError:
    """Return the pipeline's error for an error of the client."""
    place = f"the gateway at {address.rstrip('/')}"
    if isinstance(error, GatewayUnreachable):
        said = str(error)
        return errors.GatewayUnreachable(said[:1].lower() + said[1:])
    if not isinstance(error, GatewayProblem):
        return errors.GatewayRefused(str(error))
    if error.status == GONE:
        return errors.SourceLost(
            f"the journal no longer has messages that the stream has still to read: {error}"
        )
    if error.status == TOO_MANY:
        return errors.GatewayRefused(f"{place} still refuses: {error}")
    if error.status >= 500:
        return errors.GatewayUnreachable(f"{place} is out of order: {error}")
    is_fenced = error.code == "producer-fenced"
    refused = errors.RunFenced if is_fenced else errors.GatewayRefused
    return refused(f"{place} refused: {error}")


def reported_retry(
    address: str, report: Callable[[str], None], pause: Callable[[float], None]
) -> Retry:
    """Return a retry that reports each outage when it begins.

    `pause` waits between two attempts; what it raises ends them (`Stop.pause`).
    """

    def outage(error: Exception) -> None:
        if isinstance(error, GatewayError):
            error = pipeline_error(error, address)
        report(f"{error}; trying again for {PATIENCE_S:.0f} s")

    return Retry(PATIENCE_S, outage, pause)
