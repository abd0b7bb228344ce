"""Bugs on the road to plant: what breaks, the file, its line, what stands there."""

from __future__ import annotations

Planted = tuple[str, str, str]

PLANTED: dict[str, Planted] = {
    "the tail of what was written is lost on a return": (
        "conflation/sessions/backfill_rows.py",
        "        return replayed(topic, lane_id, offset, rows_max)",
        "        return replayed(topic, lane_id, offset + 1, rows_max)",
    ),
    "keys that came and went are not taken back on a return": (
        "conflation/sessions/backfill_rows.py",
        "    if lane_id.oof:",
        "    if False:",
    ),
    "a bookmark of another epoch is taken for one of this": (
        "conflation/sessions/backfill.py",
        (
            "    if bookmark.epoch != topic.epoch or bookmark.offset > topic.head"
            " or _needs_whole(lane_id):"
        ),
        "    if bookmark.offset > topic.head or _needs_whole(lane_id):",
    ),
    "an id is one too high": (
        "app/delivery/encoding.py",
        "        bookmark = Bookmark(rows.epoch, rows.batch.low_water)",
        "        bookmark = Bookmark(rows.epoch, rows.batch.low_water + 1)",
    ),
    "formats share their bytes": (
        "app/delivery/encoding.py",
        "    variant = rows.op + style.variant",
        "    variant = rows.op",
    ),
    "a take is off by one": (
        "conflation/lanes/lane.py",
        "        member.position = batch.position",
        "        member.position = batch.position + 1",
    ),
    "a flush goes twice": (
        "conflation/lanes/interval.py",
        "            changed = self.board.rows(since, oof=self.id.oof)",
        (
            "            changed = self.board.rows("
            "max(since - 1, self.board.horizon), oof=self.id.oof)"
        ),
    ),
    "what was sent ahead of its turn comes again": (
        "conflation/lanes/lane_progress.py",
        "                    self.ahead[board_key] = newest.offset",
        "                    pass",
    ),
    "the last row of a large request is dropped": (
        "app/delivery/backpressure.py",
        "        yield frames[start:end]",
        "        yield frames[start : min(end, len(frames) - 1)] or frames[start:end]",
    ),
    "nobody hears the goodbye": (
        "conflation/sessions/registry.py",
        "            session.put(Goodbye(reason))",
        "            pass",
    ),
    "who is woken late is late": (
        "app/delivery/driver.py",
        "                        consumer.wakeup.wake()",
        (
            "                        asyncio.get_running_loop()"
            ".call_later(0.002, consumer.wakeup.wake)"
        ),
    ),
    "a nearer deadline does not move the timer": (
        "app/delivery/timers.py",
        "        if due == self._due:",
        "        if due is not None and self._handle is not None:",
    ),
    "the wall clock is taken for the time": (
        "app/delivery/driver.py",
        "        self._latest = max(self._latest, self._clock())",
        "        self._latest = max(self._latest, self.wall_ms() * 1_000_000)",
    ),
    "a slow session delays the others": (
        "app/sessions/stream.py",
        "                await send(message)",
        (
            "                while getattr(EventStream, 'busy', None) not in (None, self):\n"
            "                    await anyio.sleep(0.001)\n"
            "                EventStream.busy = self\n"
            "                await send(message)\n"
            "                EventStream.busy = None"
        ),
    ),
    "silence is filled too late": (
        "app/delivery/notices.py",
        "        self._heartbeat_s = heartbeat_s",
        "        self._heartbeat_s = 3 * heartbeat_s",
    ),
    "what waited at the end is not counted": (
        "conflation/sessions/accounting.py",
        '        dropped=sums["dropped"],',
        "        dropped=0,",
    ),
    "a session is left behind": (
        "app/delivery/driver.py",
        "            self._consumers.pop(session, None)",
        "            pass",
    ),
}

# The seeds by which they are found, tried before all others; a bug that is not named is found by
# one of the first. Where the plans of seeds change, all are searched: put the new seed here then.
FOUND_BY = {
    "the tail of what was written is lost on a return": 6,
    "keys that came and went are not taken back on a return": 15,
    "a bookmark of another epoch is taken for one of this": 9,
    "formats share their bytes": 14,
    "what was sent ahead of its turn comes again": 273,
    "nobody hears the goodbye": 5,
}
