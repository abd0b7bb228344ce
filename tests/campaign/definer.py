"""Definers: they create, change and delete topics, at any gateway, and some of them compete."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

import httpx2

from tests.campaign.ledger import Definition, Ledger
from tests.campaign.writer import ANSWER_S_MAX

CONTENDED = "contended"
TOPICS = 3
KEY = {"key": ["/k"], "conflation": "conflate"}


class Definer:
    """One definer: of topics that only it defines, and of one that all of them change.

    A change of the latter is conditional (`If-Match`), so of all with one tag one may succeed.
    """

    def __init__(self, number: int, rate_per_s: float, ledger: Ledger, seed: int) -> None:
        self.name = f"definer-{number}"
        self.topics = [f"made-{number}-{at}" for at in range(TOPICS)]
        self._pause_s = 1 / rate_per_s
        self._ledger = ledger
        self._chance = random.Random(f"{seed} {self.name}")
        self._texts = 0
        self._published = 0

    async def define(self, gateways: Sequence[httpx2.AsyncClient], until: asyncio.Event) -> None:
        """Send requests until `until` is set."""
        while not until.is_set():
            gateway, other = self._chance.choices(gateways, k=2)
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    if self._chance.random() < 0.4:
                        await self._contend(gateway, other)
                    else:
                        await self._change(gateway, other)
            except (httpx2.HTTPError, TimeoutError):
                pass  # what became of it is not known, as the ledger says
            await asyncio.sleep(self._chance.expovariate(1 / self._pause_s))

    async def _contend(self, gateway: httpx2.AsyncClient, other: httpx2.AsyncClient) -> None:
        path = f"/v1/topics/{CONTENDED}"
        known = await gateway.get(path)
        if known.status_code == 200:
            request = self._definition(CONTENDED, self._text(), tag=known.headers["ETag"])
            body = {"description": request.text}
            headers = {"If-Match": request.tag, "Content-Type": "application/merge-patch+json"}
            self._note(request, await other.patch(path, json=body, headers=headers))

    async def _change(self, gateway: httpx2.AsyncClient, other: httpx2.AsyncClient) -> None:
        topic = self._chance.choice(self.topics)
        path = f"/v1/topics/{topic}"
        drawn = self._chance.random()
        if drawn < 0.3:
            request = self._definition(topic, None)
            self._note(request, await gateway.delete(path))
            return
        request = self._definition(topic, self._text())
        self._note(request, await gateway.put(path, json={**KEY, "description": request.text}))
        if request.is_done and drawn > 0.5:
            self._published += 1
            row = {"k": topic, "w": self.name, "n": self._published, "i": 0}
            await other.post(f"{path}/messages", json=row)

    def _text(self) -> str:
        self._texts += 1
        return f"{self.name} {self._texts}"

    def _definition(self, topic: str, text: str | None, tag: str = "") -> Definition:
        request = Definition(topic, self.name, text, time.monotonic(), tag)
        self._ledger.definitions.append(request)
        return request

    def _note(self, request: Definition, answer: httpx2.Response) -> None:
        request.answered_at_s = time.monotonic()
        request.status = answer.status_code
        if not (request.is_done or request.is_refused or answer.status_code == 503):
            text = f"{request.writer} {request.topic}: {answer.status_code} {answer.text[:300]}"
            self._ledger.refusals.append(text)
