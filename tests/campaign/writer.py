"""Writers: they note each request in the ledger, send it to any gateway, and go on through all."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import httpx2

from tests.campaign.ledger import Ledger, Request, Row, Verb

OWN_KEYS = 6
SHARED_KEYS = 4
ANSWER_S_MAX = 8.0
IMPATIENT_S = 0.03
AGAIN_S = 0.25
ROWS_MAX = 5
NDJSON = {"Content-Type": "application/x-ndjson"}
OK, UNAVAILABLE, UNKNOWN = 200, 503, 404


class Mark(StrEnum):
    """How a writer says which request is which, so that it may send it again."""

    KEYED = "keyed"
    NUMBERED = "numbered"
    PLAIN = "plain"


class Writer:
    """One writer of one topic, with one request at a time.

    Keyed and numbered ones send a request again, to any gateway, until it is acknowledged. Plain
    ones give up what was not answered; they remove records, too. All of them merge patches into
    records that they share.
    """

    def __init__(
        self, topic: str, mark: Mark, number: int, rate_per_s: float, ledger: Ledger, seed: int
    ) -> None:
        self.name = f"{topic}-{mark}-{number}"
        self._topic = topic
        self._mark = mark
        self._pause_s = 1 / rate_per_s
        self._ledger = ledger
        self._chance = random.Random(f"{seed} {self.name}")
        self._number = 0
        self._own = [f"{self.name}-{at}" for at in range(OWN_KEYS)]
        self._at = self._chance.randrange(3)

    async def write(self, gateways: Sequence[httpx2.AsyncClient], until: asyncio.Event) -> None:
        """Send requests until `until` is set, and what is open then to its end."""
        while not until.is_set():
            request = self._next()
            self._ledger.requests.append(request)
            await self._finish(gateways, request)
            await asyncio.sleep(self._chance.expovariate(1 / self._pause_s))

    async def _finish(self, gateways: Sequence[httpx2.AsyncClient], request: Request) -> None:
        while not await self._attempt(gateways, request):
            if self._mark is Mark.PLAIN and request.attempts:
                return
            await asyncio.sleep(AGAIN_S * self._chance.random())
            self._at = self._chance.randrange(len(gateways))

    def _next(self) -> Request:
        self._number += 1
        if self._chance.random() < 0.1:
            self._at = self._chance.randrange(3)
        drawn = self._chance.random()
        if self._mark is Mark.PLAIN and drawn < 0.3:
            return self._removal()
        if self._mark is not Mark.NUMBERED and drawn > 0.75:
            return self._request(Verb.MERGE, [self._patch()])
        count = self._chance.choice((1, 1, 1, 2, ROWS_MAX))
        return self._request(Verb.PUBLISH, [self._row(index) for index in range(count)])

    def _removal(self) -> Request:
        verb = self._chance.choice((Verb.REMOVE, Verb.REMOVE_MATCHING, Verb.REMOVE_IN_ORDER))
        keys = self._own if verb is Verb.REMOVE_MATCHING else [self._chance.choice(self._own)]
        return Request(
            self._topic, self.name, self._number, verb, (), tuple(keys), time.monotonic()
        )

    def _request(self, verb: Verb, rows: Sequence[Row]) -> Request:
        keys = tuple(row["k"] for row in rows)
        return Request(self._topic, self.name, self._number, verb, rows, keys, time.monotonic())

    def _row(self, index: int) -> Row:
        is_own = self._chance.random() < 0.8
        shared = f"{self._topic}-shared-{self._chance.randrange(SHARED_KEYS)}"
        key = self._chance.choice(self._own) if is_own else shared
        row = {"k": key, "own": int(is_own), "w": self.name, "n": self._number, "i": index}
        return {**row, "by": {self.name: self._number}}

    def _patch(self) -> Row:
        """Make a patch of a shared record: what others merged into it has to stay."""
        key = f"{self._topic}-shared-{self._chance.randrange(SHARED_KEYS)}"
        row = {"k": key, "own": 0, "w": self.name, "n": self._number, "i": 0}
        return {**row, "by": {self.name: self._number}}

    async def _attempt(self, gateways: Sequence[httpx2.AsyncClient], request: Request) -> bool:
        """Send once; return whether the request has come to its end."""
        request.gateways.append(self._at)
        is_repeated = self._mark is not Mark.PLAIN
        impatient = is_repeated and not request.attempts and self._chance.random() < 0.05
        try:
            async with asyncio.timeout(IMPATIENT_S if impatient else ANSWER_S_MAX):
                answer = await self._send(gateways[self._at], request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return False  # nothing was sent: no attempt
        except (httpx2.HTTPError, TimeoutError):
            request.attempts += 1
            return False
        request.attempts += 1
        if answer.status_code == OK:
            request.acknowledge(time.monotonic(), answer.json())
            return True
        if answer.status_code not in {UNAVAILABLE, UNKNOWN}:
            self._ledger.refusals.append(f"{request}: {answer.status_code} {answer.text[:300]}")
            return True
        return False

    async def _send(self, gateway: httpx2.AsyncClient, request: Request) -> httpx2.Response:
        match request.verb:
            case Verb.PUBLISH | Verb.MERGE:
                return await self._publish(gateway, request)
            case Verb.REMOVE_IN_ORDER:
                body = json.dumps({"key": list(request.keys), "reason": "deleted"}).encode()
                return await self._post(gateway, body, {"format": "envelope"}, {})
            case Verb.REMOVE:
                params = {"key": json.dumps(list(request.keys))}
            case _:
                params = {"filter": f"(/w = '{self.name}') AND (/own = 1)"}
        return await gateway.delete(f"/v1/topics/{self._topic}/sow", params=params)

    async def _publish(self, gateway: httpx2.AsyncClient, request: Request) -> httpx2.Response:
        headers = {}
        if self._mark is Mark.KEYED:
            headers["Idempotency-Key"] = f"{self.name}-{request.number}"
        elif self._mark is Mark.NUMBERED:
            headers["Tidegate-Producer"] = self.name
            headers["Tidegate-Sequence"] = str(request.number)
        params = {"delta": "true"} if request.verb is Verb.MERGE else {}
        body = b"\n".join(json.dumps(row).encode() for row in request.rows)
        return await self._post(gateway, body, params, headers)

    async def _post(
        self,
        gateway: httpx2.AsyncClient,
        body: bytes,
        params: dict[str, Any],
        headers: dict[str, str],
    ) -> httpx2.Response:
        return await gateway.post(
            f"/v1/topics/{self._topic}/messages",
            params=params,
            content=body,
            headers={**NDJSON, **headers},
        )
