"""The entries of a Redis stream, read by id; Redis 6.2 or newer."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidegate.pipeline.errors import SourceLost
from tidegate.pipeline.redis_server import RedisServer

BEGINNING = "0-0"
ENTRIES_PER_PAGE = 1_000
# Only count and id are returned. Redis serves no other client while it walks a page.
STEP = """
local found = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])
if #found == 0 then return {0, ARGV[1]} end
return {#found, found[#found][1]}
"""

Fields = dict[bytes, bytes]


class Entries:
    """The entries of one stream.

    Raises:
        GatewayRefused: by every method: Redis refused the command.
        GatewayUnreachable: by every method: Redis does not answer.
    """

    def __init__(self, server: RedisServer, stream: str) -> None:
        self._ask = server.ask
        self._stream = stream

    def last(self) -> str:
        """Return the id of the newest entry ever added; `BEGINNING` if there is no stream."""
        # XINFO refuses a missing stream with the error of an unknown key.
        if not self._ask("EXISTS", self._stream):
            return BEGINNING
        found: bytes = self._ask("XINFO STREAM", self._stream)["last-generated-id"]
        return found.decode()

    def exists(self, at: str) -> bool:
        """Return whether the entry `at` exists."""
        return bool(self._ask("XRANGE", self._stream, at, at))

    def can_resume_after(self, at: str) -> bool:
        """Return whether the entry `at` exists, or is the newest ever added."""
        return at == BEGINNING or self.exists(at) or self.last() == at

    def require(self, at: str) -> None:
        """Check that the entry `at` has not been trimmed, which means that no later one has.

        Raises:
            SourceLost: it is gone, and is not the newest ever added.
        """
        if self.can_resume_after(at):
            return
        raise SourceLost(
            f"Redis stream {self._stream} no longer holds entry {at}, which was read last: it was "
            "deleted or trimmed, so messages may be gone; "
            "remove the checkpoint to read what is there"
        )

    def step(self, after: str, until: str, rows: int) -> tuple[int, str]:
        """Count the entries, `rows` at most, between two ids; return the count and the last id."""
        count, at = 0, after
        while count < rows:
            wanted = min(rows - count, ENTRIES_PER_PAGE)
            found, last = self._ask("EVAL", STEP, 1, self._stream, at, until, wanted)
            count, at = count + found, last.decode()
            if found < wanted:
                break
        return count, at

    def pages(self, after: str, last: str) -> Iterator[list[tuple[bytes, Fields]]]:
        """Yield ids and fields of the entries after one id up to another, in order."""
        while after != last:
            page = self._ask("XRANGE", self._stream, f"({after}", last, "COUNT", ENTRIES_PER_PAGE)
            if not page:
                return
            yield page
            after = page[-1][0].decode()


def as_json(fields: Fields) -> bytes:
    """Return all fields of an entry as one JSON object of strings."""
    # Redis holds arbitrary bytes, JSON only Unicode: other bytes become escapes.
    texts = (
        (name.decode("utf-8", "backslashreplace"), text.decode("utf-8", "backslashreplace"))
        for name, text in fields.items()
    )
    return msgspec.json.encode(dict(texts))
