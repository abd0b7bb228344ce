"""A connection to a gateway, whose refusals become errors of the pipeline."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tidegate.clients import BODY_BYTES_MAX, DEFAULT_ADDRESS
from tidegate.clients.answers import shown_address
from tidegate.clients.errors import GatewayError, GatewayProblem, GatewayUnreachable
from tidegate.clients.gateway import Gateway
from tidegate.clients.retry import Retry
from tidegate.pipeline import errors

# Longer than a gateway's restart. A local Spark does not repeat a failed task (its master URL would
# have to ask for it), so this is the only retry that a task's request gets.
PATIENCE_S = 60.0
PATIENT = Retry(PATIENCE_S)
"""Every request of a stream may be repeated: stages and commits have names and numbers."""
AT_ONCE = Retry(0.0)
"""For callers that will ask again by themselves."""

TOO_MANY = 429


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
    place = f"the gateway at {shown_address(address.rstrip('/'))}"
    if isinstance(error, GatewayUnreachable):
        said = str(error)
        return errors.GatewayUnreachable(said[:1].lower() + said[1:])
    if not isinstance(error, GatewayProblem):
        return errors.GatewayRefused(str(error))
    # The client has waited as the gateway asked and tried again: more patience would not help.
    if error.status == TOO_MANY:
        return errors.GatewayRefused(f"{place} still refuses: {error}")
    # Like an outage: the request is fine, and the same may succeed later.
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


# --- stages: messages stored at the gateway until one commit publishes them

# After a lost answer a whole stage is sent again.
STAGE_MESSAGES_MAX = 10_000


class Line(NamedTuple):
    """A message's JSON text on one line, or an envelope: of a removal, or of a message and key."""

    text: bytes
    is_envelope: bool = False


def removal(record_key: bytes, reason: str = "deleted") -> Line:
    """Return the removal of the record of a key."""
    return Line(b'{"key":%b,"reason":"%b"}' % (record_key, reason.encode()), is_envelope=True)


class Stages:
    """Fills stage after stage with the lines of one task.

    Args:
        gateway: keeps them.
        topic: the topic of the commit.
        producer: that will commit them.
        name: the beginning of the stages' names; no two attempts, batches or runs share one.

    Attributes:
        names: the names of the full stages, in their order.
        messages: how many lines they have.
    """

    def __init__(self, gateway: Gateway, topic: str, producer: str, name: str) -> None:
        self.names: list[str] = []
        self.messages = 0
        self._gateway = gateway
        self._topic = topic
        self._producer = producer
        self._name = name
        self._lines: list[tuple[bytes, bool]] = []  # not `Line`, whose making takes longer
        self._bytes = 0

    def add(self, text: bytes, *, is_envelope: bool = False) -> None:
        """Add a line; send a full stage to the gateway."""
        is_full = len(self._lines) == STAGE_MESSAGES_MAX
        if is_full or self._bytes + len(text) >= BODY_BYTES_MAX:
            self.end()
        self._lines.append((text, is_envelope))
        self._bytes += len(text) + 1  # with its line break

    def end(self) -> None:
        """Send what is left."""
        if not self._lines:
            return
        # A request that is sent again has the same name, and so replaces what it stored before.
        name = f"{self._name}.{len(self.names)}"
        body, enveloped = body_of(self._lines)
        self._gateway.stage(self._topic, [body], name, self._producer, enveloped=enveloped)
        self.names.append(name)
        self.messages += len(self._lines)
        self._lines, self._bytes = [], 0


def body_of(lines: Sequence[tuple[bytes, bool]]) -> tuple[bytes, bool]:
    """Return lines as the body of a request, and whether it has envelopes.

    Without an envelope among them the texts go as they are: the gateway has nothing to unpack.
    """
    enveloped = any(is_envelope for _, is_envelope in lines)
    texts = (
        text if is_envelope or not enveloped else b'{"value":%b}' % text
        for text, is_envelope in lines
    )
    return b"\n".join(texts) + b"\n", enveloped
