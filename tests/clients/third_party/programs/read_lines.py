"""Follows the address in the second argument with httpx or aiohttp, which the first one names.

Neither knows of events: this takes the lines apart and resumes, as users' own programs do.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import httpx

PAUSE_S = 0.1


class Events:
    """Prints each event, and keeps the last id for the next request."""

    def __init__(self) -> None:
        self._last_id = ""
        self._texts: list[str] = []
        self._fields: dict[str, str] = {}

    def header(self) -> dict[str, str]:
        """Return the header of the next request; an event that was cut off is forgotten."""
        self._texts, self._fields = [], {}
        return {"Last-Event-ID": self._last_id} if self._last_id else {}

    def take(self, line: str) -> None:
        """Take a line without its end."""
        name, _, text = line.partition(":")
        if name == "data":
            self._texts.append(text.removeprefix(" "))
        elif line:
            self._fields[name] = text.removeprefix(" ")
        else:
            self._last_id = self._fields.get("id", self._last_id)
            if self._texts:
                show(self._fields.get("event", "message"), self._last_id, "\n".join(self._texts))
            self._texts, self._fields = [], {}


def show(*parts: str) -> None:
    """Print what the test reads."""
    sys.stdout.write("\t".join(parts) + "\n")


async def with_httpx(address: str) -> None:
    """Follow with httpx, until the gateway refuses."""
    events = Events()
    async with httpx.AsyncClient(timeout=None) as client:
        while True:
            try:
                async with client.stream("GET", address, headers=events.header()) as answer:
                    if answer.is_error:
                        await answer.aread()
                    answer.raise_for_status()
                    async for line in answer.aiter_lines():
                        events.take(line)
            except httpx.HTTPStatusError as error:
                refused = error.response
                return show("refused", str(refused.status_code), refused.json()["code"])
            except httpx.TransportError:
                await asyncio.sleep(PAUSE_S)


async def with_aiohttp(address: str) -> None:
    """Follow with aiohttp, until the gateway refuses."""
    events = Events()
    # By default a request ends after five minutes.
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as client:
        while True:
            try:
                async with client.get(address, headers=events.header()) as answer:
                    if not answer.ok:
                        return show("refused", str(answer.status), (await answer.json())["code"])
                    async for line in answer.content:
                        events.take(line.decode().rstrip("\r\n"))
            except aiohttp.ClientError:
                await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    follow = {"httpx": with_httpx, "aiohttp": with_aiohttp}[sys.argv[1]]
    asyncio.run(follow(sys.argv[2]))
