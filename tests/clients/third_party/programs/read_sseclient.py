"""Follows the address in the first argument with sseclient-py, which leaves requests to others."""

from __future__ import annotations

import sys
import time

import httpx
import sseclient


def main(address: str) -> None:
    """Print every event; ask again, after the last id, whenever the stream has ended."""
    last_id = ""
    with httpx.Client(timeout=None) as client:
        while True:
            headers = {"Last-Event-ID": last_id} if last_id else {}
            try:
                with client.stream("GET", address, headers=headers) as answer:
                    for event in sseclient.SSEClient(answer.iter_bytes()).events():
                        last_id = event.id or last_id
                        sys.stdout.write(f"{event.event}\t{event.id}\t{event.data}\n")
            except httpx.TransportError:
                time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])
