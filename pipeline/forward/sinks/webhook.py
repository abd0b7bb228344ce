"""Sends rows to a webhook: POSTs JSON arrays to an HTTP server, signed as Standard Webhooks.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import random
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import httpx2

from tidegate.clients.retry import doubled_s
from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.forward.target import Patience, Refusal, Row

ADDRESS = re.compile(r"https?://[^\s/]+(/\S*)?")
PREFIX = "whsec_"
ABOUT_ROWS = frozenset({400, 413, 422})
"""The statuses that refuse the rows themselves: repeating the same rows cannot succeed."""
PAUSE_FIRST_S = 1.0
PAUSE_MOST_S = 60.0
SILENCE_SECONDS_MAX = 30.0
ANSWER_SECONDS_MAX = 60.0
"""From the connection to the end of the answer's header, however slowly its bytes come."""
TEXT_SECONDS_MAX = 5.0
"""Then for the text of the answer, which only the reason of a refusal needs."""
ROWS_MAX = 500
BODY_BYTES_MAX = 1024 * 1024
REASON_MAX = 200
SAID_BYTES_MAX = 64 * 1024
"""Of an answer's body: what follows is not read, and the connection closed."""


@dataclass(frozen=True, slots=True)
class WebhookSink:
    """The table `sink` of kind webhook.

    `attempts` is the most attempts of a POST that the server does not accept; None: no limit.
    """

    address: str
    secret: bytes = field(repr=False)
    attempts: int | None
    rows_max: int
    kind: ClassVar[str] = "webhook"
    keeps_position: ClassVar[bool] = False
    knows_message_ids: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The sink's name in logs and for its position, without user and password.

        The query, which may hold a token, is a hash.
        """
        parts = httpx2.URL(self.address)
        label = f"webhook {parts.scheme}://{parts.netloc.decode()}{parts.path}"
        if not parts.query:
            return label
        return f"{label} query {hashlib.blake2b(parts.query, digest_size=4).hexdigest()}"

    def target(self, name: str, patience: Patience) -> WebhookTarget:
        """Return a target that has not connected yet."""
        return WebhookTarget(self, name, patience)


def read_sink(table: TomlTable, folder: Path) -> WebhookSink:
    """Read the table; a relative path of `secret_file` is below `folder`."""
    expected = "an address such as https://hooks.example/prices"
    return WebhookSink(
        address=table.secret("address", ADDRESS, expected, httpx2.URL, httpx2.InvalidURL),
        secret=_secret(table, folder),
        attempts=table.count("attempts"),
        rows_max=table.count("rows_max") or ROWS_MAX,
    )


def _secret(table: TomlTable, folder: Path) -> bytes:
    if table.has("secret_file") == table.has("secret_env"):
        raise DefinitionInvalid(f"{table.where('secret_file')}: expected it, or secret_env")
    if table.has("secret_file"):
        name = "secret_file"
        path = folder / table.text(name)
        try:
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise DefinitionInvalid(f"{table.where(name)}: cannot be read: {error}") from None
    else:
        name = "secret_env"
        text = os.environ.get(table.text(name), "").strip()
    if not text:
        raise DefinitionInvalid(f"{table.where(name)}: names no secret, or an empty one")
    if not text.startswith(PREFIX):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise DefinitionInvalid(
            f"{table.where(name)}: a secret that begins with {PREFIX} continues in base64"
        ) from None


class WebhookTarget:
    """Posts arrays of rows, one at a time (a `Target`)."""

    def __init__(self, sink: WebhookSink, name: str, patience: Patience) -> None:
        self._sink = sink
        self._name = name
        self._patience = patience
        # Of asyncio, where an attempt as a whole has a time limit.
        self._runner = asyncio.Runner()
        # A redirect could send rows to another host.
        self._http = httpx2.AsyncClient(timeout=SILENCE_SECONDS_MAX, follow_redirects=False)

    def open(self) -> None:
        """Do nothing: the first request shows whether the server answers."""

    def write(self, rows: Sequence[Row]) -> list[Refusal]:
        """Post rows until each is accepted or refused; return the refused ones."""
        refused: list[Refusal] = []
        part: list[Row] = []
        size = 0
        for row in rows:
            length = len(row.text)
            if part and (len(part) == self._sink.rows_max or size + length > BODY_BYTES_MAX):
                refused += self._post(part)
                part, size = [], 0
            part.append(row)
            size += length
        return refused + self._post(part)

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._http.aclose())
        self._runner.close()

    def _post(self, rows: Sequence[Row]) -> list[Refusal]:
        """Post rows; if the server refuses them, post halves to find the rows at fault."""
        body = b"[" + b",".join(row.text for row in rows) + b"]"
        reason, is_about_rows = self._deliver(body)
        if reason is None:
            return []
        if len(rows) == 1 or not is_about_rows:
            return [Refusal(row, reason) for row in rows]
        middle = len(rows) // 2
        return self._post(rows[:middle]) + self._post(rows[middle:])

    def _deliver(self, body: bytes) -> tuple[str | None, bool]:
        """Post a body until it is accepted; return why not, and whether its rows are at fault.

        Raises:
            Stopped: the run ends.
        """
        # All attempts have one id, so that the server can drop repetitions.
        name = f"{self._name}_{uuid.uuid4().hex}"
        failed = 0
        while True:
            status, reason, asked_s = self._attempt(name, body)
            if not reason:
                return None, False
            if status in ABOUT_ROWS:
                return reason, True
            failed += 1
            if failed == self._sink.attempts:
                return f"{reason}, at {failed} attempts", False
            if failed == 1:
                self._patience.say(f"{self._sink.label}: {reason}; trying again")
            # With jitter, so that senders which lost a server together do not return together.
            pause_s = doubled_s(failed, PAUSE_FIRST_S, PAUSE_MOST_S) * random.uniform(0.5, 1.0)
            self._patience.pause(max(pause_s, asked_s))

    def _attempt(self, name: str, body: bytes) -> tuple[int, str, float]:
        """Post once; return the status, the reason if refused, and the seconds of Retry-After."""
        at = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "Webhook-Id": name,
            "Webhook-Timestamp": at,
            "Webhook-Signature": signature(self._sink.secret, name, at, body),
        }
        try:
            answer, text = self._runner.run(self._ask(headers, body))
        except TimeoutError:
            return 0, f"no answer in {ANSWER_SECONDS_MAX:.0f} s", 0.0
        except httpx2.HTTPError as error:
            return 0, str(error) or type(error).__name__, 0.0
        if answer.is_success:
            return answer.status_code, "", 0.0
        said = " ".join(text[:REASON_MAX].split())
        reason = f"answered {answer.status_code}" + (f": {said}" if said else "")
        asked = answer.headers.get("Retry-After", "")
        asked_s = float(asked) if asked.isdecimal() and len(asked) < len("86400") else 0.0
        return answer.status_code, reason, asked_s

    async def _ask(self, headers: Mapping[str, str], body: bytes) -> tuple[httpx2.Response, str]:
        """Post once; return the answer and the beginning of its text."""
        address = self._sink.address
        request = self._http.build_request("POST", address, content=body, headers=headers)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            answer = await self._http.send(request, stream=True)
        try:
            return answer, await _beginning(answer)
        finally:
            await answer.aclose()


async def _beginning(answer: httpx2.Response) -> str:
    read = b""
    # The status has said whether the server has the rows, whatever becomes of the text.
    with suppress(httpx2.HTTPError, TimeoutError):
        async with asyncio.timeout(TEXT_SECONDS_MAX):
            async for piece in answer.aiter_bytes():
                read += piece
                if len(read) >= SAID_BYTES_MAX:
                    break
    return read.decode(errors="replace")


def signature(secret: bytes, name: str, at: str, body: bytes) -> str:
    """Return the header field `Webhook-Signature` of a body.

    Args:
        secret: shared with the server.
        name: `Webhook-Id`, the same in all attempts.
        at: `Webhook-Timestamp`, in seconds of the epoch.
        body: as it is sent.
    """
    signed = b"%b.%b.%b" % (name.encode(), at.encode(), body)
    return "v1," + base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()
