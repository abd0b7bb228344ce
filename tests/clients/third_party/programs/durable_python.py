"""Follows a stream with durable-streams of PyPI: prints each row as one line of JSON.

It ends where an answer is none of the protocol, such as a proxy's: the program then goes on from
its last offset. Arguments: the address, and how it waits: long-poll or sse.
"""

import json
import sys
import time

import httpx
from durable_streams import DurableStreamError, stream

_, url, live = sys.argv
offset = "-1"
while True:
    try:
        with stream(url, offset=offset, live="sse" if live == "sse" else "long-poll") as reading:
            for event in reading.iter_events("json_batches"):
                for row in event.data:
                    sys.stdout.write(json.dumps(row) + "\n")
                sys.stdout.flush()
                offset = event.next_offset
    except (DurableStreamError, httpx.HTTPError):
        time.sleep(0.5)
