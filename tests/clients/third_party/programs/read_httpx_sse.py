"""Follows the address in the first argument with httpx-sse; it reconnects as its pages say."""

from __future__ import annotations

import sys
import time

import httpx
from httpx_sse import connect_sse


def main(address: str) -> None:
    """Print every event; ask again, after the last id, whenever the stream has ended."""
    last_id = ""
    with httpx.Client(timeout=None) as client:
        while True:
            headers = {"Last-Event-ID": last_id} if last_id else {}
            try:
                with connect_sse(client, "GET", address, headers=headers) as source:
                    for event in source.iter_sse():
                        last_id = event.id or last_id
                        # Once it knows an id, this library hands on comments as well, as
                        # events without data, which by the standard are none.
                        if event.data:
                            sys.stdout.write(f"{event.event}\t{event.id}\t{event.data}\n")
            except httpx.TransportError:
                time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])
