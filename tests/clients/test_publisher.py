"""Publishers deliver each message once and in order, and say which they could not."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.support.streams import Script, plain, scripted
from tests.support.commands import address_of, environment, serving_here, start
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port
from tidegate.clients.aio.gateway import AsyncGateway
from tidegate.clients.aio.publisher import AsyncPublisher
from tidegate.clients.errors import GatewayProblem, PublisherStopped
from tidegate.clients.gateway import Gateway
from tidegate.clients.publishing.outbox import Batch, Limits, Outbox

PUBLISHED = b'{"topic":"t","messages":1,"first":"e-1","last":"e-1"}'
OK = plain(200, PUBLISHED, "application/json")
SLOW = Limits(linger_s=3600.0)


def texts(batch: Batch | None) -> list[bytes]:
    assert batch is not None
    return batch.lines


def outbox(*messages: Any, **limits: Any) -> Outbox:
    made = Outbox(Limits(**limits))
    for message in messages:
        made.add(message, 0.0)
    return made


def test_a_batch_is_sent_when_it_is_full_or_old_or_asked_for() -> None:
    box = outbox(1, 2, count=3, linger_s=5.0)
    assert (box.due_s(1.0), box.next(1.0)) == (4.0, None)
    box.add({"three": 9007199254740993}, 1.0)
    assert texts(box.next(1.0)) == [b"1", b"2", b'{"three":9007199254740993}']
    old = outbox(b'{"as": "it is"}', linger_s=5.0)
    assert texts(old.next(5.0)) == [b'{"as": "it is"}']
    asked = outbox(1, linger_s=5.0)
    assert asked.flush() == 1
    assert texts(asked.next(0.0)) == [b"1"]
    large = outbox("x" * 20, "y" * 20, "z", bytes=30, linger_s=5.0)
    assert [len(texts(large.next(0.0)))] == [1]


def test_one_batch_is_on_its_way_at_a_time_and_the_next_has_another_key() -> None:
    box = outbox(1, 2, 3, count=2, linger_s=0.0)
    first = box.next(0.0)
    assert (texts(first), box.due_s(9.0), box.next(9.0)) == ([b"1", b"2"], None, None)
    box.sent()
    second = box.next(0.0)
    assert texts(second) == [b"3"]
    assert first is not None
    assert second is not None
    assert first.post.headers != second.post.headers
    assert box.delivered == 2
    assert box.unsent == [b"3"]


def test_what_is_on_its_way_takes_room() -> None:
    box = outbox("x" * 10, waiting_bytes=12, linger_s=0.0)
    assert not box.has_room
    box.next(0.0)
    assert not box.has_room
    box.sent()
    assert box.has_room


def test_a_failed_batch_stops_it_and_is_unsent_with_all_behind_it() -> None:
    box = outbox(1, 2, 3, count=2, linger_s=0.0)
    box.next(0.0)
    cause = GatewayProblem(422, "key-missing", "No key")
    box.failed(cause)
    assert box.has_room
    assert (box.due_s(0.0), box.next(0.0)) == (None, None)
    with pytest.raises(PublisherStopped, match=r"key-missing.*3 messages unsent") as stopped:
        box.add(4, 0.0)
    assert stopped.value.unsent == [b"1", b"2", b"3"]
    assert stopped.value.__cause__ is cause


def numbered(*sequences: int) -> Outbox:
    box = Outbox(Limits(linger_s=0.0), "desk")
    for sequence in sequences:
        box.add(sequence, 0.0, sequence)
    return box


def test_the_first_number_goes_alone_and_what_was_published_is_not_sent() -> None:
    box = numbered(3, 5, 7, 9)
    first = box.next(0.0)
    assert first is not None
    assert first.lines == [b"3"]
    assert first.post.headers["Tidegate-Producer"] == "desk"
    assert first.post.headers["Tidegate-Sequence"] == "3"
    box.sent(highest=7)
    assert (box.delivered, box.unsent) == (3, [b"9"])
    box.add(11, 0.0, 11)
    second = box.next(0.0)
    assert second is not None
    assert (second.lines, second.post.headers["Tidegate-Sequence"]) == ([b"9", b"11"], "11")
    box.sent()
    assert (box.delivered, box.unsent, box.has_room) == (5, [], True)


def test_what_is_taken_after_the_answer_may_be_known_too() -> None:
    box = numbered(1)
    box.next(0.0)
    box.sent(highest=2)
    box.add(2, 0.0, 2)
    box.add(3, 0.0, 3)
    assert (box.delivered, texts(box.next(0.0))) == (2, [b"3"])


def test_another_writer_under_the_name_stops_it() -> None:
    box = numbered(1, 2, 3)
    box.next(0.0)
    box.sent()
    box.next(0.0)
    box.sent(highest=4)
    with pytest.raises(PublisherStopped, match=r"another writer.*desk.*2 messages") as stopped:
        box.check()
    assert stopped.value.unsent == [b"2", b"3"]


@pytest.mark.parametrize("sequence", [None, 4, 5])
def test_numbers_rise(sequence: int | None) -> None:
    with pytest.raises(ValueError, match="sequence"):
        numbered(5).add(6, 0.0, sequence)
    with pytest.raises(ValueError, match="sequence"):
        outbox().add(6, 0.0, 1)


@pytest.mark.parametrize("text", [b"1\n2", b"1\r2"])
def test_two_lines_are_no_message(text: bytes) -> None:
    with pytest.raises(ValueError, match="one line"):
        outbox(text)


def _sync(address: str, work: Callable[[Any], None], limits: Limits, patience_s: float) -> None:
    with Gateway(address) as gateway, gateway.publisher("t", limits, patience_s) as publisher:
        work(publisher)


def _asyncio(address: str, work: Callable[[Any], None], limits: Limits, patience_s: float) -> None:
    """The same work through the coroutines, from a thread of its own."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with (
            AsyncGateway(address) as gateway,
            gateway.publisher("t", limits, patience_s) as publisher,
        ):
            await asyncio.to_thread(work, _Awaited(publisher, loop))

    asyncio.run(run())


class _Awaited:
    """An `AsyncPublisher` with the methods of a `Publisher`."""

    def __init__(self, publisher: AsyncPublisher, loop: asyncio.AbstractEventLoop) -> None:
        self._publisher = publisher
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._publisher, name)
        if not callable(found):
            return found
        return lambda *given: self._result(found(*given))

    def _result(self, work: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(HANGS_S)


Work = Callable[[Any], None]
both = pytest.mark.parametrize("run", [_sync, _asyncio], ids=["sync", "asyncio"])


@both
def test_a_batch_is_repeated_under_its_key_until_it_is_taken(run: Any) -> None:
    busy = plain(429, b"{}", "application/problem+json", retry_after="0")
    with scripted(plain(503), busy, OK, OK) as fake:

        def work(publisher: Any) -> None:
            publisher.publish({"n": 1})
            publisher.publish({"n": 2})
            publisher.flush()
            assert (publisher.delivered, publisher.unsent) == (2, [])
            publisher.publish({"n": 3})

        run(fake.address, work, SLOW, 60.0)
    assert fake.bodies == [b'{"n":1}\n{"n":2}'] * 3 + [b'{"n":3}']
    keys = [headers["idempotency-key"] for headers in fake.headers]
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]


@both
@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (404, b"default backend - 404", "text/plain"),
        (403, b'{"code":"AccessDenied"}', "application/json"),
        (302, b"", "text/html"),
        (200, b"<html>We will be back soon", "text/html"),
        (200, b'{"status":"maintenance"}', "application/json"),
    ],
)
def test_a_batch_is_repeated_while_another_server_answers(
    run: Any, status: int, said: bytes, kind: str
) -> None:
    with scripted(plain(status, said, kind), OK) as fake:
        run(fake.address, lambda publisher: publisher.publish(1), SLOW, 60.0)
    assert len({headers["idempotency-key"] for headers in fake.headers}) == 1
    assert len(fake.bodies) == 2


@both
def test_a_refusal_stops_it_and_nothing_is_lost_silently(run: Any) -> None:
    refusal = b'{"title":"No key","status":422,"code":"key-missing","line":1}'
    with scripted(plain(422, refusal, "application/problem+json")) as fake:

        def work(publisher: Any) -> None:
            publisher.publish({"n": 1})
            with pytest.raises(PublisherStopped, match="key-missing") as stopped:
                publisher.flush()
            assert stopped.value.unsent == [b'{"n":1}']
            with pytest.raises(PublisherStopped):
                publisher.publish({"n": 2})

        with pytest.raises(PublisherStopped):  # from the end of the block, too
            run(fake.address, work, SLOW, 60.0)
        assert len(fake.requests) == 1


@both
def test_patience_ends(run: Any) -> None:
    with scripted(plain(503)) as fake, pytest.raises(PublisherStopped, match="http-503"):
        run(fake.address, lambda publisher: publisher.publish(1), SLOW, 0.3)


@both
def test_publish_waits_while_too_much_is_unsent(run: Any) -> None:
    held = threading.Event()

    def slow(request: Any) -> Any:
        held.wait(HANGS_S)
        return OK(request)

    script: Script = slow
    with scripted(script) as fake:

        def work(publisher: Any) -> None:
            publisher.publish("x" * 10)
            second = threading.Thread(target=publisher.publish, args=("y",))
            second.start()
            second.join(0.2)
            assert second.is_alive()
            held.set()
            second.join(HANGS_S)
            assert not second.is_alive()

        run(fake.address, work, Limits(waiting_bytes=12, linger_s=0.0), 60.0)
    assert len(fake.bodies) == 2


@both
def test_a_flush_takes_as_long_as_is_allowed(run: Any) -> None:
    with scripted(plain(503), plain(503), OK) as fake:

        def work(publisher: Any) -> None:
            publisher.publish(1)
            with pytest.raises(TimeoutError):
                publisher.flush(0.001)
            assert publisher.unsent == [b"1"]

        run(fake.address, work, SLOW, 60.0)
    assert len(fake.requests) == 3


def test_what_is_closed_takes_nothing() -> None:
    with scripted(OK) as fake, Gateway(fake.address) as gateway:
        publisher = gateway.publisher("t")
        publisher.close()
        publisher.close()
        with pytest.raises(ValueError, match="closed"):
            publisher.publish(1)


def _publish(address: str, count: int) -> None:
    limits = Limits(count=50)
    with Gateway(address) as gateway:
        with gateway.publisher("t", limits, producer="desk") as publisher:
            for number in range(count):
                publisher.publish(number, sequence=number)
        assert publisher.delivered == count


def _publish_async(address: str, count: int) -> None:
    async def run() -> None:
        async with AsyncGateway(address) as gateway:
            async with gateway.publisher("t", Limits(count=50), producer="desk") as publisher:
                for number in range(count):
                    await publisher.publish(number, sequence=number)
            assert publisher.delivered == count

    asyncio.run(run())


FORGETFUL = """
import sys
from tidegate.clients.gateway import Gateway
from tidegate.clients.publishing.outbox import Limits
Gateway(sys.argv[1]).publisher("t", Limits(linger_s=3600.0)).publish({"n": 1})
"""


@pytest.mark.system
def test_a_program_that_forgets_to_close_it_loses_nothing() -> None:
    with scripted(OK) as fake:
        command = [sys.executable, "-P", "-c", FORGETFUL, fake.address]
        subprocess.run(command, env=environment(), check=True, timeout=HANGS_S)
        assert fake.bodies == [b'{"n":1}']


FORKING = """
import os, sys
from tidegate.clients.gateway import Gateway

gateway = Gateway(sys.argv[1])
publisher, numbered = gateway.publisher("t"), gateway.publisher("t", producer="p")
publisher.publish({"of": "the parent"})
assert list(gateway.topics())
process = os.fork()
if not process:
    publisher.publish({"of": "the child"})
    publisher.flush(30)
    gateway.publish("t", [{"asked by": "the child"}])
    try:
        numbered.publish(1, 1)
    except ValueError as error:
        gateway.publish("t", [{"refused": str(error)}])
    sys.exit()
gateway.publish("t", [{"asked by": "the parent"}])
publisher.close()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


@pytest.mark.system
def test_a_forked_process_sends_what_it_publishes_itself() -> None:
    """As under gunicorn with `--preload`: made before the fork, used after it."""
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("t", {"type": "series"})
        command = [sys.executable, "-P", "-c", FORKING, address]
        subprocess.run(command, env=environment(), check=True, timeout=HANGS_S)
        published = [json.loads(line)["value"] for line in gateway.messages("t")]
    assert sorted(map(str, published)) == sorted(
        map(
            str,
            [
                {"of": "the parent"},
                {"of": "the child"},
                {"asked by": "the parent"},
                {"asked by": "the child"},
                {"refused": "a publisher with a producer works only in the process that made it"},
            ],
        )
    )


ENDING = """
import atexit, sys, threading
from tidegate import Gateway

ended = threading.Event()
atexit.register(ended.wait, 30)  # after the publisher's own, which stands later
publisher = Gateway(sys.argv[1]).publisher("t")

def publish_for_ever():
    try:
        while True:
            publisher.publish(1)
    except ValueError as error:
        print(error, flush=True)
        ended.set()

threading.Thread(target=publish_for_ever, daemon=True).start()
"""


@pytest.mark.system
def test_a_thread_is_told_that_the_end_of_the_program_has_closed_its_publisher() -> None:
    with serving_here() as address, Gateway(address):
        ended = subprocess.run(
            [sys.executable, "-P", "-c", ENDING, address],
            env=environment(),
            check=True,
            timeout=HANGS_S,
            capture_output=True,
            text=True,
        )
    assert ended.stdout == "the program ends, which has closed the publisher\n"


@pytest.mark.parametrize("publishes", [_publish, _publish_async], ids=["sync", "asyncio"])
def test_a_producer_counts_over_a_restart_of_its_program(publishes: Any) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("t", {"type": "series"})
        for count in (70, 70, 200):
            publishes(address, count)
        published = [json.loads(line)["value"] for line in gateway.messages("t", limit=1_000)]
        assert published == list(range(200))


@pytest.mark.system
@pytest.mark.parametrize(
    "run",
    [
        pytest.param(_sync, id="sync"),
        pytest.param(_asyncio, id="asyncio", marks=pytest.mark.nightly),
    ],
)
def test_each_message_is_there_once_and_in_order_over_a_kill(run: Any, tmp_path: Path) -> None:
    command = ["serve", "--port", str(lasting_port()), "--data", str(tmp_path)]
    process = start(*command)
    try:
        address = address_of(process)
        with Gateway(address) as admin:
            admin.put_topic("t", {"type": "series"})

            def work(publisher: Any) -> None:
                nonlocal process
                for n in range(2_000):
                    publisher.publish(n)
                    if n == 1_000:
                        process.kill()
                        process.communicate(timeout=HANGS_S)
                        process = start(*command)
                        address_of(process)
                publisher.flush()
                assert publisher.delivered == 2_000

            run(address, work, Limits(count=50), HANGS_S)
            assert [json.loads(line)["value"] for line in admin.messages("t", limit=5_000)] == list(
                range(2_000)
            )
    finally:
        process.kill()
        process.communicate(timeout=HANGS_S)
