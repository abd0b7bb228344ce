"""A connection to a gateway, whose refusals leave it as errors of the pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.clients import DEFAULT_ADDRESS
from tidegate.clients.errors import GatewayError, GatewayProblem, GatewayUnreachable
from tidegate.clients.gateway import Gateway
from tidegate.clients.retry import Retry
from tidegate.pipeline import errors

PATIENCE_S = 60.0
PATIENT = Retry(PATIENCE_S)
"""Everything that a stream asks may be asked twice, staging and commits included."""
AT_ONCE = Retry(0.0)
"""For whoever comes again by himself."""

GONE, TOO_MANY = 410, 429


def default_gateway() -> str:
    """Return the gateway to use where neither an option nor a definition file names one."""
    return os.environ.get("TIDEGATE_GATEWAY") or DEFAULT_ADDRESS


@contextmanager
def gateway_at(address: str, retry: Retry = PATIENT) -> Iterator[Gateway]:
    """A gateway for the block; what it refuses there leaves the block as a `PipelineError`.

    Raises:
        UsageInvalid: no address of a gateway: nobody would ever answer there.
    """
    try:
        gateway = Gateway(address, every=retry)
    except ValueError:  # its text has the address, which may hold a password
        raise errors.UsageInvalid(
            f"the address of a gateway is such as {DEFAULT_ADDRESS}"
        ) from None
    with gateway, as_pipeline_errors(address):
        yield gateway


@contextmanager
def as_pipeline_errors(address: str) -> Iterator[None]:
    """Errors of the client leave the block as errors of the pipeline."""
    try:
        yield
    except GatewayError as error:
        raise pipeline_error(error, address) from error


def pipeline_error(error: GatewayError, address: str) -> errors.PipelineError:
    """What an error of the client is to a stream."""
    place = f"the gateway at {address.rstrip('/')}"
    if isinstance(error, GatewayUnreachable):
        said = str(error)
        return errors.GatewayUnreachable(said[:1].lower() + said[1:])
    if not isinstance(error, GatewayProblem):
        return errors.GatewayRefused(str(error))
    if error.status == GONE:
        return errors.SourceLost(
            f"messages that the stream had still to read are gone from the journal: {error}"
        )
    if error.status == TOO_MANY:
        return errors.GatewayRefused(f"{place} still says no: {error}")
    if error.status >= 500:
        return errors.GatewayUnreachable(f"{place} is out of order: {error}")
    is_fenced = error.code == "producer-fenced"
    refused = errors.RunFenced if is_fenced else errors.GatewayRefused
    return refused(f"{place} said no: {error}")
