"""Recorded ticks as messages, and mixed with what they are not: very late ones, and removals."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tests.pipeline.event_time import Timed
from tidegate.keys.spec import KeySpec, record_key

KEY = "[/tickerId,/exchange,/type]"
WANTED = "/size >= 300 OR /bidSize >= 500 OR /askSize >= 500"
REDUCERS = "[/price:max@high,/price:min@low,/size:sum@volume,/bid:first@open,/ts:count@ticks]"
LATE_EVERY, REMOVED_EVERY = 50, 97
LATE_STEP_MS = 400


def timed(lines: Iterable[bytes]) -> list[Timed]:
    """The lines as messages, numbered from 1, with times and keys of their own."""
    key_of = record_key(KeySpec.parse(KEY))
    decode = msgspec.json.Decoder(dict[str, object]).decode
    return [
        Timed(number, int(str(decode(line)["ts"])), key_of(line), line)
        for number, line in enumerate(lines, start=1)
    ]


def mixed(lines: Iterable[bytes]) -> list[Timed]:
    """The same, some up to 2.4 s earlier than they were; and now and then one is removed again."""
    found: list[Timed] = []
    for number, time_ms, record, body in (one[:4] for one in timed(lines)):
        assert time_ms is not None
        assert body is not None
        late_ms = number % 7 * LATE_STEP_MS if number % LATE_EVERY == 0 else 0
        late = body.replace(b'"ts":%d' % time_ms, b'"ts":%d' % (time_ms - late_ms))
        found.append(Timed(len(found) + 1, time_ms - late_ms, record, late))
        if number % REMOVED_EVERY == 0:
            found.append(Timed(len(found) + 1, None, record, None))
    return found
