"""Fan-out: one text to the sockets of a whole cohort."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.gateways import eventually
from tests.support.manual_driver import ManualDriver
from tidegate.app.figures import ConnectionFigures
from tidegate.app.http.admission import ConnectionLimits
from tidegate.app.streams.compression import Coding, GzipStream
from tidegate.app.streams.connection import Connection, HandedOver, WriteWatch
from tidegate.app.streams.encoding import Format, Style, chunk
from tidegate.app.streams.fanout import (
    BYTES_AT_ONCE,
    DRAINED_AT_ONCE,
    LEFT,
    SMALL_BUFFERS_BYTES,
    STREAMS_AT_ONCE,
    CohortWriter,
    send_each,
)
from tidegate.app.streams.scheduler import StreamScheduler
from tidegate.app.streams.sse import HEARTBEAT
from tidegate.conflation.frame import Batch, Frame
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.outputs import Rows

NEVER_S = 3_600.0


class Resumed(asyncio.Protocol):
    """Goes on with what its connection has kept, as a stream does."""

    connection: Connection

    def resume_writing(self) -> None:
        asyncio.get_running_loop().call_soon(self.connection.write_kept)


class Peer:
    """A recipient, and the far end of its connection."""

    def __init__(self, line: HandedOver, far: socket.socket) -> None:
        self.line = line
        self.far = far
        self.sent_away = 0
        self.wrote_s = asyncio.get_running_loop().time()
        self.encoder: GzipStream | None = None
        self.at, self.had_bytes = LEFT, 0
        self.writer: CohortWriter | None = None
        self.got_bytes = 0

    def enter(self, writer: CohortWriter) -> None:
        self.writer = writer
        writer.enter(self)

    def leave(self) -> None:
        assert self.writer is not None
        self.got_bytes = self.writer.leave(self)

    def wake(self) -> None:
        self.sent_away += 1
        self.leave()

    async def received(self, size_bytes: int) -> bytes:
        loop = asyncio.get_running_loop()
        found = b""
        async with asyncio.timeout(HANGS_S):
            while len(found) < size_bytes:
                found += await loop.sock_recv(self.far, 1 << 20)
        return found

    def nothing_came(self) -> bool:
        try:
            return not self.far.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True


class Scripted(Cohort):
    """A cohort that takes what a test says."""

    def __init__(self, member: Member, lane: Lane, rows: list[Rows]) -> None:
        super().__init__(member, lane, "kind")
        self.rows = rows

    @property
    def has_rows(self) -> bool:
        return bool(self.rows)


class Hall:
    """A cohort writer, what its cohort takes, and peers."""

    def __init__(self, stack: AsyncExitStack, heartbeat_s: float, coding: Coding) -> None:
        driver = ManualDriver()
        driver.topic()
        driver.subscribe("conflation=100ms")
        found = driver.engine.enter_cohort("s", "kind")
        assert found is not None
        [member] = found.members.values()
        cut = driver.engine.topic("px").bookmark(0)
        self.rows: list[Rows] = []
        self.taken = 0
        cohort = Scripted(member, found.lane, self.rows)
        self.wrote: list[tuple[int, int]] = []
        self.writer = CohortWriter(
            cohort,
            Style(
                Format.VALUE, driver.engine.topic("px").definition.kind, member.subscription, cut
            ),
            coding=coding,
            take=self._take,
            wrote=lambda streams, size_bytes, _: self.wrote.append((streams, size_bytes)),
            scheduler=StreamScheduler(),
            heartbeat_s=heartbeat_s,
        )
        self._stack = stack
        self._watch = WriteWatch(NEVER_S, StreamScheduler())

    def _take(self, cohort: Cohort, bytes_max: int) -> Rows | None:
        assert cohort is self.writer.cohort
        self.taken += 1
        return self.rows.pop(0) if self.rows else None

    async def peer(self, *, enters: bool = True) -> Peer:
        near, far = socket.socketpair()
        far.setblocking(False)
        self._stack.callback(far.close)
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(Resumed, sock=near)
        self._stack.callback(transport.abort)
        figures = ConnectionFigures(1)
        connection = protocol.connection = Connection(transport, lambda: None, figures)
        self._stack.callback(connection.release)
        limits = ConnectionLimits(figures)
        line = HandedOver(transport, connection, self._watch, limits.leave, set(), is_paused=False)
        peer = Peer(line, far)
        if enters:
            peer.enter(self.writer)
        return peer

    def publish(self, payload: bytes) -> bytes:
        """Let the cohort take this; the bytes that each peer is to get."""
        self.rows.append(Rows("", "px", "e1", "publish", Batch([Frame(1, payload)], 0, 1, None)))
        return chunk(b"data: " + payload + b"\n\n")


@asynccontextmanager
async def hall(
    heartbeat_s: float = NEVER_S, coding: Coding = Coding.IDENTITY
) -> AsyncIterator[Hall]:
    async with AsyncExitStack() as stack:
        yield Hall(stack, heartbeat_s, coding)
        await asyncio.sleep(0)


async def test_every_stream_gets_the_text_once() -> None:
    async with hall() as made:
        peers = [await made.peer() for _ in range(STREAMS_AT_ONCE + 3)]
        text = made.publish(b'"one"') + made.publish(b'"two"')
        made.writer()
        for peer in peers:
            assert await peer.received(len(text)) == text
            assert peer.nothing_came()
        assert sum(streams for streams, _ in made.wrote) == 2 * len(peers)
        for peer in peers:
            peer.leave()
            assert peer.got_bytes == sum(len(b'data: "one"\n\n') for _ in range(2))


async def test_after_a_round_nothing_is_taken_unless_there_is_more() -> None:
    async with hall() as made:
        peers = [await made.peer() for _ in range(2)]
        for said in ((b'"one"',), (b'"two"', b'"three"')):
            made.taken = 0
            text = b"".join(map(made.publish, said))
            made.writer.cohort.ready = True  # as it is while it is announced
            made.writer()
            for peer in peers:
                assert await peer.received(len(text)) == text
            assert made.taken == len(said)
            assert not made.writer.cohort.ready, "the next flush is announced"


async def test_few_streams_get_a_large_text_in_one_call() -> None:
    async with hall() as made:
        peers = [await made.peer() for _ in range(6)]
        made.publish(LARGE)
        made.writer()
        assert [streams for streams, _ in made.wrote] == [BYTES_AT_ONCE // len(LARGE) + 1]
        await asyncio.sleep(0)
        assert sum(streams for streams, _ in made.wrote) == len(peers)


LARGE = b'"' + b"x" * (1 << 20) + b'"'  # more than any socket takes at once


async def test_one_whose_socket_is_full_stays_if_it_has_drained_by_the_next_text() -> None:
    async with hall() as made:
        peers = [await made.peer(), await made.peer()]
        text = made.publish(LARGE)
        made.writer()
        for peer in peers:
            assert peer.line.connection.write_buffer_bytes
            assert await peer.received(len(text)) == text
        text = made.publish(b'"next"')
        made.writer()
        for peer in peers:
            assert await peer.received(len(text)) == text
            assert peer.sent_away == 0


async def test_one_whose_socket_is_still_full_is_sent_away_before_the_next_text() -> None:
    async with hall() as made:
        full, quick = await made.peer(), await made.peer()
        text = made.publish(LARGE)
        made.writer()
        assert await quick.received(len(text)) == text
        second = made.publish(b'"next"')
        made.writer()
        assert (full.sent_away, quick.sent_away) == (1, 0)
        assert await full.received(len(text)) == text
        assert await quick.received(len(second)) == second
        assert full.nothing_came()


async def test_a_crowd_whose_sockets_are_full_is_sent_away_in_turns() -> None:
    async with hall() as made:
        peers = [await made.peer() for _ in range(3 * DRAINED_AT_ONCE)]
        made.publish(b"1" * (4 * SMALL_BUFFERS_BYTES))
        while made.writer._at < len(peers):  # to its end, and no further
            made.writer()
        made.publish(b'"next"')
        sent_away = [0]
        while sent_away[-1] < len(peers):
            made.writer()
            sent_away.append(sum(peer.sent_away for peer in peers))
            in_order = [peer.sent_away for peer in peers]
            assert in_order == sorted(in_order, reverse=True), "the first to drain leave first"
        assert sent_away == [0, DRAINED_AT_ONCE, 2 * DRAINED_AT_ONCE, 3 * DRAINED_AT_ONCE]


async def test_those_that_leave_while_they_drain_are_forgotten() -> None:
    async with hall() as made:
        stays, *leave = [await made.peer() for _ in range(5)]
        text = made.publish(LARGE)
        made.writer()
        for peer in leave:
            peer.leave()
        assert await stays.received(len(text)) == text
        for number in range(2):
            text = made.publish(b"%d" % number)
            made.writer()
            assert await stays.received(len(text)) == text
        assert stays.sent_away == 0


async def test_one_that_leaves_in_a_round_has_its_text_and_one_that_comes_has_had_it() -> None:
    async with hall() as made:
        peers = [await made.peer() for _ in range(STREAMS_AT_ONCE + 1)]
        late = await made.peer(enters=False)
        text = made.publish(b'"one"')
        made.writer()  # the first call, which leaves the last peer for another
        last = peers[-1]
        assert last.nothing_came()
        last.leave()
        assert last.got_bytes == len(b'data: "one"\n\n')
        peers[0].leave()
        late.enter(made.writer)
        for peer in peers:
            assert await peer.received(len(text)) == text
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert late.nothing_came()
        assert all(peer.nothing_came() for peer in peers)
        second = made.publish(b'"two"')
        made.writer()
        assert await late.received(len(second)) == second
        assert await peers[1].received(len(second)) == second
        assert last.nothing_came()
        assert peers[0].nothing_came()


async def test_places_of_those_who_left_are_closed() -> None:
    async with hall() as made:
        peers = [await made.peer() for _ in range(9)]
        for peer in peers[::2]:
            peer.leave()
        stay = [*peers[1::2], await made.peer()]
        for number in range(3):
            text = made.publish(b"%d" % number)
            made.writer()
            for peer in stay:
                assert await peer.received(len(text)) == text
            stay.pop(0).leave()
        assert all(peer.nothing_came() for peer in peers)


async def test_a_peer_whose_client_has_left_closes_and_the_others_get_their_text() -> None:
    async with hall() as made:
        gone, there = await made.peer(), await made.peer()
        gone.far.close()
        for number in range(3):
            text = made.publish(b"%d" % number)
            made.writer()
            assert await there.received(len(text)) == text
        await eventually(gone.line.transport.is_closing, "the transport finds out")
        assert there.sent_away == 0


async def test_a_peer_that_takes_nothing_is_sent_away_when_the_kernel_is_asked() -> None:
    async with hall() as made:
        frozen, reading = await made.peer(), await made.peer()
        half = b'"' + b"x" * (SMALL_BUFFERS_BYTES // 2 + 1_000) + b'"'
        for _ in range(3):
            text = made.publish(half)
            made.writer()
            assert await reading.received(len(text)) == text
        unsent = frozen.line.connection.unsent_bytes
        if unsent > SMALL_BUFFERS_BYTES:  # else this system's socket pairs do not say
            assert frozen.sent_away == 1
        assert reading.sent_away == 0


async def test_a_silent_cohort_gets_one_heartbeat_for_all() -> None:
    async with hall(heartbeat_s=0.05) as made:
        first, second = await made.peer(), await made.peer()
        beat = chunk(HEARTBEAT)
        assert await first.received(2 * len(beat)) == 2 * beat
        assert (await second.received(2 * len(beat)))[: len(beat)] == beat
        assert {streams for streams, _ in made.wrote} == {2}


async def test_the_longest_silence_decides_when_the_heartbeat_comes() -> None:
    async with hall(heartbeat_s=NEVER_S) as made:
        await made.peer()
        silent = await made.peer(enters=False)
        silent.wrote_s -= NEVER_S
        silent.enter(made.writer)
        beat = chunk(HEARTBEAT)
        assert await silent.received(len(beat)) == beat


@pytest.mark.parametrize("iterations", [0, 1])
async def test_a_compressed_stream_can_end_with_a_checksum_after_it_left(iterations: int) -> None:

    async with hall(coding=Coding.GZIP) as made:
        peers = [await made.peer(enters=False) for _ in range(STREAMS_AT_ONCE + 1)]
        for peer in peers:
            peer.encoder = GzipStream()
            peer.enter(made.writer)
        made.publish(b'"' + b"x" * 2_000 + b'"')
        made.writer()
        for _ in range(iterations):
            await asyncio.sleep(0)
        last = peers[-1]
        assert last.encoder is not None
        last.leave()
        last.line.write(chunk(last.encoder.end()))
        last.line.transport.close()
        await asyncio.sleep(0)
        body = b""
        async with asyncio.timeout(HANGS_S):
            while piece := await asyncio.get_running_loop().sock_recv(last.far, 1 << 16):
                body += piece
        text = last.encoder.header + b"".join(_chunks(body))
        assert gzip.decompress(text) == b'data: "' + b"x" * 2_000 + b'"\n\n'


def _chunks(body: bytes) -> list[bytes]:
    found = []
    while body:
        size, _, body = body.partition(b"\r\n")
        found.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return found


def test_a_socket_that_takes_less_says_how_much() -> None:
    text, large = b"data: 1\n\n", b"x" * (4 << 20)  # more than any socket holds
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(20)]
        for near, far in pairs:
            near.setblocking(False)
            stack.callback(near.close)
            stack.callback(far.close)
        full, gone, closed = 3, 5, 11
        while sum(send_each([pairs[full][0]], large)):
            pass
        pairs[gone][1].close()
        pairs[closed][0].close()
        taken_bytes = send_each([near for near, _ in pairs], text)
        assert [at for at, taken in enumerate(taken_bytes) if not taken] == [full, gone, closed]
        assert set(taken_bytes) == {0, len(text)}
        [some] = send_each([pairs[0][0]], large)
        assert 0 < some < len(large)
