"""One client from connection to connection: its replica, order, resumes, snapshots, removals, ids.

I1, I6 to I9 and I12, by what the client received and the ledger alone.
"""

from __future__ import annotations

import json
from typing import Any

from tests.simulation.client import Client, Connection
from tests.simulation.deliveries import Broken, Delivery, Opened, require
from tests.simulation.events import ReceivedEvent, ReceivedRow, rows_of
from tests.simulation.ledger import Entry, EpochLedger
from tests.simulation.link import Sent
from tests.support.models.boards import patched

SPANS_MAX = 8
REASONS = {
    "MESSAGE_QUEUE_LIMIT_REACHED",
    "SHUTDOWN",
    "CLOSED_BY_ADMIN",
    "UNSUBSCRIBED",
    "WRITE_TIMEOUT",
}


class ClientModel:
    """One client's belief. `holds`: offset and value of each key; `mark`: where its id stands."""

    def __init__(self, client: Client, ledgers: dict[str, EpochLedger]) -> None:
        self.subscription = client.plan.subscription
        self.seen: list[Opened] = []
        self.holds: dict[str, tuple[int, Any]] = {}
        self.knows_all = False
        self.since = 0
        self.mark = 0
        self._client = client
        self._ledgers = ledgers
        self._group: int | None = None
        self._group_at = 0

    def replay(self) -> None:
        """All connections, in order."""
        for connection in self._client.connections:
            if connection.status is not None:
                require(connection.status in {200, 204, 404}, "I20", f"status {connection.status}")
            if connection.socket.sents and connection.status == 200:
                self._connection(connection)

    def _connection(self, connection: Connection) -> None:
        """First what arrived; then what did not, which changes nothing in the client."""
        seen: Opened | None = None
        before = self._belief()
        for number, (received, sent) in enumerate(Opened.events_of(connection)):
            if number == len(connection.received):
                before = self._belief()
                if seen is not None:
                    self._check_opening(seen)
            if number == 0:
                seen = self._hello(connection, received)
                if seen is None:
                    return
            else:
                assert seen is not None
                require(seen.goodbye is None, "I6", "something models a goodbye")
                self._event(seen, received, sent, arrived=number < len(connection.received))
        assert seen is not None
        if len(connection.received) > number:
            self._check_opening(seen)
        else:
            self.holds, self.knows_all, self.since, self.mark = before
        if self.subscription.interval_ns == 0 and self.subscription.topic.policy in {
            "off",
            "unsubscribe",
        }:
            self._check_unbroken(seen)

    def _belief(self) -> tuple[dict[str, tuple[int, Any]], bool, int, int]:
        return dict(self.holds), self.knows_all, self.since, self.mark

    def _hello(self, connection: Connection, hello: ReceivedEvent) -> Opened | None:
        """None for a refusal."""
        if hello.name == "refused":
            return None
        require(hello.name == "hello", "I15", f"the first event is {hello.name}")
        document = hello.document
        seen = Opened(connection, self._ledgers[document["epoch"]], document["session"])
        self.seen.append(seen)
        self._group, self._last = None, 0
        if not connection.last_id:
            self.holds.clear()
            self.knows_all = self.subscription.snapshot
            if not self.subscription.snapshot:
                seen.cut = self.since = self._offset(seen, hello.id)
        if hello.id:
            self.mark = self._offset(seen, hello.id)
        return seen

    def _event(self, seen: Opened, received: ReceivedEvent, sent: Sent, *, arrived: bool) -> None:
        first = len(seen.rows) == 0 and seen.mode == "" and self._group is None
        if seen.connection.last_id and first and received.name != "goodbye":
            require(received.name == "resumed", "I7", f"{received.name} before resumed")
        match received.name:
            case "resumed":
                self._resumed(seen, received.document)
            case "group_begin":
                self._group, self._group_at = received.document["rows"], len(seen.rows)
                self.holds.clear()
                self.knows_all = True
            case "group_end":
                self._group_end(seen, received)
            case "message" | "delta" | "oof":
                for row in self._rows(received):
                    self._row(seen, row, sent.asked_ns, arrived=arrived)
            case "goodbye":
                seen.goodbye = sent
                require(received.document["reason"] in REASONS, "I17", "an unknown reason")
            case "unsubscribed" | "progress" | "late":
                pass
            case _:
                raise Broken("I15", f"an event {received.name}")
        if received.id:
            self._id(seen, received)

    def _rows(self, received: ReceivedEvent) -> list[ReceivedRow]:
        form = self.subscription.form
        try:
            return rows_of(received, form)
        except (LookupError, TypeError, ValueError) as error:
            raise Broken("I15", f"not of format {form}: {received.text[:200]}") from error

    def _id(self, seen: Opened, received: ReceivedEvent) -> None:
        """An id never steps back, and promises what came before it."""
        offset = self._offset(seen, received.id)
        if received.id != seen.connection.last_id:
            require(seen.mode == "snapshot" or offset >= self.mark, "I7", "an id steps back")
            require(offset <= len(seen.ledger.entries), "I7", "an id of the future")
            self.mark = offset

    def _offset(self, seen: Opened, text: str) -> int:
        epoch, _, offset = text.rpartition("-")
        if epoch != seen.ledger.epoch:
            require(text == seen.connection.last_id, "I25", f"an id of another epoch: {text}")
            return self.mark
        return int(offset)

    # Openings

    def _resumed(self, seen: Opened, document: dict[str, Any]) -> None:
        seen.mode = document["mode"]
        epoch, _, offset = seen.connection.last_id.rpartition("-")
        same = epoch == seen.ledger.epoch
        gap = document["gap_messages"]
        head = int(offset) + gap if same and gap is not None else None
        require(same or seen.mode == "snapshot", "I7", f"{seen.mode} from another epoch")
        require(seen.mode in self._modes(same, int(offset), head), "I7", f"resumed by {seen.mode}")
        if seen.mode != "snapshot":
            assert head is not None
            seen.cut = head

    def _modes(self, same: bool, offset: int, head: int | None) -> set[str]:
        """CONTRACT 4.2: the first that fits."""
        subscription = self.subscription
        if not same or head is None or (subscription.oof and subscription.least is not None):
            return {"snapshot"}
        if subscription.interval_ns and subscription.topic.keyed:
            return {"changes"}
        if offset < head - subscription.topic.history:
            return {"snapshot"}
        conflates = subscription.topic.policy in {"conflate", "always"}
        may_conflate = subscription.topic.keyed and conflates and not subscription.interval_ns
        return {"replay", "changes"} if may_conflate else {"replay"}

    def _group_end(self, seen: Opened, received: ReceivedEvent) -> None:
        """I12: the state at the cut, the whole of it, nothing else."""
        seen.cut = self._offset(seen, received.id)
        told = seen.rows[self._group_at :]
        require(self._group == len(told) == received.document["rows"], "I12", "rows of a group")
        self._group = None
        expected = self._state(seen.ledger, seen.cut) if self.subscription.topic.keyed else {}
        require({row.own: row.entry for row in told} == expected, "I12", "a snapshot's rows")
        self.mark = seen.cut
        if not self.subscription.topic.keyed:
            self.knows_all, self.since = False, seen.cut

    def _state(self, ledger: EpochLedger, cut: int) -> dict[str, Entry]:
        """What stands in a topic's state of the world and matches."""
        found = ((own, ledger.newest(own, cut)) for own in ledger.by_own)
        return {
            own: e
            for own, e in found
            if e is not None and not e.gone and self.subscription.matches(e.value)
        }

    def _check_opening(self, seen: Opened) -> None:
        """I7: what followed the last id, the whole of it, nothing else."""
        if seen.mode not in {"changes", "replay"} or seen.cut is None:
            return
        start = int(seen.connection.last_id.rpartition("-")[2])
        told = [row for row in seen.rows if row.arrived and not row.live]
        whole = self.mark >= seen.cut
        if seen.mode == "replay" and self.subscription.interval_ns == 0:
            expected = [e for e in seen.ledger.after(start, seen.cut) if self._is_told(e)]
            got = [row.entry for row in told]
            require(got == expected[: len(got)], "I7", "a replay is not what was missed")
            require(not whole or len(got) == len(expected), "I7", "a replay is not whole")
            return
        needed = self._changed(seen.ledger, start, seen.cut)
        got_newest = {row.own: row.entry for row in told}
        if whole:
            for own, entry in needed.items():
                require(got_newest.get(own) is entry, "I7", f"{own} of {entry.offset} was missed")
        if seen.mode == "changes":
            count = len({row.own for row in told})
            require(count == len(told), "I7", "changes repeat a key")

    def _is_told(self, entry: Entry) -> bool:
        return self.subscription.oof if entry.gone else self.subscription.matches(entry.value)

    def _changed(self, ledger: EpochLedger, start: int, cut: int) -> dict[str, Entry]:
        """The keys that a client at `start` must be told of."""
        needed: dict[str, Entry] = {}
        for own, entries in ledger.by_own.items():
            newest = ledger.newest(own, cut)
            if newest is None or newest.offset <= start:
                continue
            if newest.gone:
                before = ledger.newest(own, start)
                held = before is not None and not before.gone
                if self.subscription.oof and held and sum(e.gone for e in entries) <= SPANS_MAX:
                    needed[own] = newest
            elif self.subscription.matches(newest.value):
                needed[own] = newest
        return needed

    # Rows

    def _row(self, seen: Opened, row: ReceivedRow, asked_ns: int, *, arrived: bool) -> None:
        entry = self._oof(seen, row, asked_ns) if row.op == "oof" else self._put(seen, row)
        self._check_envelope(seen, row, entry)
        live = seen.cut is not None and entry.offset > seen.cut
        if not live and seen.mode in {"changes", "replay"}:
            start = int(seen.connection.last_id.rpartition("-")[2])
            require(entry.offset > start, "I7", f"{entry.offset} repeats what was before {start}")
        require(live or seen.mode or self._group is not None, "I12", "an old row among live ones")
        require(not live or entry.offset > self.mark, "I7", f"{entry.offset} behind id {self.mark}")
        own = (
            ""
            if not self.subscription.topic.keyed and not self.subscription.interval_ns
            else row.own
        )
        seen.rows.append(Delivery(entry, own, row.op, live, asked_ns, arrived))
        self._check_order(seen, own, entry, live=live)

    def _check_envelope(self, seen: Opened, row: ReceivedRow, entry: Entry) -> None:
        """The bookmark is that of the first message that the row stands for (rule interval-8)."""
        if row.bookmark:
            epoch, _, first = row.bookmark.rpartition("-")
            require(epoch == seen.ledger.epoch, "I25", "a row of another epoch")
            require(int(first) <= entry.offset, "I1", f"{row.own}: a bookmark behind its row")
        in_group = self._group is not None
        require(row.snapshot in {None, in_group}, "I12", "a snapshot row is one of a group")

    def _check_order(self, seen: Opened, own: str, entry: Entry, *, live: bool) -> None:
        """I1; on a return, what followed the last id may come again."""
        if self.subscription.interval_ns == 0 and live:
            require(entry.offset > self._last, "I1", f"{entry.offset} after {self._last}")
            self._last = entry.offset
        before = [row.entry.offset for row in seen.rows[:-1] if row.own == own]
        if before:
            require(entry.offset > before[-1], "I1", f"{own}: {entry.offset} after {before[-1]}")

    def _put(self, seen: Opened, row: ReceivedRow) -> Entry:
        """A value; a patch on what is held."""
        value = row.value
        if row.op == "delta":
            require(row.own in self.holds, "I9", f"a delta of {row.own}, which is not held")
            value = patched(self.holds[row.own][1], value)
        entry = seen.ledger.by_serial.get(value["n"])
        if entry is None:
            raise Broken("I1", f"an invented value of {row.own}")
        exact = row.text == entry.text if row.text and row.op == "value" else alike(value, entry)
        require(exact, "I9" if row.op == "delta" else "I1", f"{row.own} is not as published")
        require(self.subscription.matches(value), "I13", f"{row.own} does not match")
        self.holds[row.own] = (entry.offset, value)
        return entry

    def _oof(self, seen: Opened, row: ReceivedRow, asked_ns: int) -> Entry:
        """I8: the key is held, and has left. On a return it may be told to who does not hold it."""
        require(self.subscription.oof, "I8", "a removal that nobody asked for")
        entries = seen.ledger.by_own.get(row.own, [])
        left = [entry for entry in entries if self._leaves(entry, asked_ns)]
        stood = seen.ledger.by_serial[row.value["n"]].offset
        told = next((entry for entry in left if entry.offset >= stood), None)
        if told is None:
            raise Broken("I8", f"{row.own} has not left")
        returned = bool(seen.mode) and seen.cut is not None and told.offset <= seen.cut
        may_be = returned or not self.knows_all or len(left) > SPANS_MAX  # rule board-2
        require(row.own in self.holds or may_be, "I8", f"{row.own} was not held")
        self.holds.pop(row.own, None)
        return told

    def _leaves(self, entry: Entry, by_ns: int) -> bool:
        in_time = entry.at_ns is not None and entry.at_ns <= by_ns
        return in_time and (entry.gone or not self.subscription.matches(entry.value))

    # Every message

    def _check_unbroken(self, seen: Opened) -> None:
        """I6: all that matches, in order, without holes."""
        if seen.cut is None:
            return
        got = [row.entry for row in seen.rows if row.live and row.op != "oof"]
        expected = [e for e in seen.ledger.after(seen.cut) if not e.gone and self._is_told(e)]
        require(got == expected[: len(got)], "I6", "a hole among all messages")


def alike(value: Any, entry: Entry) -> bool:
    """The same value: 1 is not true."""
    return json.dumps(value, sort_keys=True) == json.dumps(entry.value, sort_keys=True)
