"""Rows are messages of a JetStream stream, whose subjects are made of their keys, each once."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.js.api import DiscardPolicy, KeyValueConfig
from nats.js.client import JetStreamContext

from tests.pipeline.forward.forwarding import definitions, forwarding
from tests.pipeline.ingest.ingesting import eventually, ingesting, journal
from tests.support import commands
from tests.support.commands import serving_here
from tests.support.deadlines import HANGS_S
from tests.support.external.nats import NatsServer, nats_server
from tests.support.profiles import SEED
from tests.support.rules import rule
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.errors import DefinitionInvalid, EndpointRefused, EndpointUnavailable
from tidegate.pipeline.forward.position import PositionFile
from tidegate.pipeline.forward.sinks.nats import NatsTarget, subject_of
from tidegate.pipeline.forward.target import FeedBatch, Patience, Row

pytestmark = [pytest.mark.system, pytest.mark.nightly]
KEYS = 200
KILLS = 6

OF_ALL = {"Nats-Expected-Stream", "Nats-Msg-Id"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def server(running: NatsServer) -> NatsServer:
    """A server with an empty stream `prices`."""
    make(running)
    return running


def make(server: NatsServer, **limits: Any) -> None:
    server.make_only_stream("prices", "px.>", **limits)


def file(server: NatsServer, more: str = "", subject: str = "px.{key/0}") -> str:
    return f"""
        [forward.prices]
        source = {{topic = "prices", options = "conflation=50ms"}}
        sink = {{kind = "nats", address = "{server.address}", stream = "prices",
            subject = "{subject}"{more}}}
    """.replace(",\n            ", ", ")


def messages(server: NatsServer) -> list[tuple[str, bytes, dict[str, str]]]:
    """Subject, payload and headers of what the stream has."""

    async def ask(stream: JetStreamContext) -> list[tuple[str, bytes, dict[str, str]]]:
        last = (await stream.stream_info("prices")).state.last_seq
        found = [await stream.get_msg("prices", at) for at in range(1, last + 1)]
        return [
            (
                str(each.subject),
                each.data or b"",
                {name: text for name, text in (each.headers or {}).items() if name not in OF_ALL},
            )
            for each in found
        ]

    return server.ask(ask)


def opened(server: NatsServer, folder: Path, **given: str) -> NatsTarget:
    [definition] = definitions(folder, file(server, **given), "http://127.0.0.1:8080")
    target = definition.sink.target("a", Patience(time.sleep, print))
    assert isinstance(target, NatsTarget)
    try:
        target.open()
    except BaseException:
        target.close()
        raise
    return target


def row(key: bytes, value: bytes) -> Row:
    fields = {"op": b'"publish"', "key": key, "value": value}
    return Row("publish", {name: msgspec.Raw(text) for name, text in fields.items()})


@rule("forward-1")
def test_records_and_removals_arrive_in_order_and_come_back(
    server: NatsServer, tmp_path: Path
) -> None:
    back = f"""
        [ingest.back]
        key = ["/k"]
        fields = {{k = "channel/1"}}
        source = {{kind = "nats", address = "{server.address}", stream = "prices"}}
        sink = {{topic = "back"}}
    """
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": "a", "n": 1}, {"k": "b.c", "n": 1}])
        with forwarding(tmp_path, file(server), address) as lines:
            eventually(lambda: len(messages(server)), 2)
            gateway.delete_records("prices", record_key="a")
            eventually(lambda: len(messages(server)), 3)
        gateway.publish("prices", {"k": "d", "n": 1})
        with forwarding(tmp_path, file(server), address):
            eventually(lambda: len(messages(server)), 4)
        assert messages(server) == [
            ("px.a", b'{"k":"a","n":1}', {}),
            ("px.b%2Ec", b'{"k":"b.c","n":1}', {}),
            ("px.a", b"", {"KV-Operation": "DEL"}),
            ("px.d", b'{"k":"d","n":1}', {}),
        ]
        place = f"nats 127.0.0.1:{server.port} stream prices px.{{key/0}}"
        assert lines[0] == f"prices: topic prices to {place}"
        with ingesting(tmp_path, back, address):
            eventually(lambda: len(journal(address, "back")), 4)
        assert len(list(gateway.sow("back"))) == 2


@rule("forward-6")
@pytest.mark.parametrize("is_whole", [True, False])
def test_every_row_is_stored_once_whatever_is_killed(tmp_path: Path, is_whole: bool) -> None:
    chance, stop = random.Random(SEED), threading.Event()
    path = tmp_path / "targets.toml"
    options = "conflation=none,bookmark=epoch" if is_whole else "conflation=20ms"
    definition: dict[str, Any] = {"conflation": "off"} if is_whole else {"key": ["/k"]}
    subject = "px.all" if is_whole else "px.{key/0}"
    with (
        nats_server(tmp_path) as server,
        serving_here() as address,
        Gateway(address) as gateway,
        ThreadPoolExecutor(1) as threads,
    ):
        make(server)
        path.write_text(file(server, subject=subject).replace("conflation=50ms", options))
        gateway.put_topic("prices", definition)

        def publish() -> int:
            count = 0
            while not stop.wait(0.02):  # more than the stream can store: a batch is always written
                part = range(count, count + KEYS // 2)
                gateway.publish("prices", [{"k": each % KEYS, "n": each} for each in part])
                count = part.stop
            return count

        publishing = threads.submit(publish)
        try:
            for at in range(KILLS):
                before = stored(server)
                command = commands.start("forward", str(path), TIDEGATE_GATEWAY=address)
                await_more(server, before)
                time.sleep(chance.uniform(0, 0.5))
                command.kill()
                command.communicate()
                if at % 3 == 2:
                    server.kill()
                    server.start()
        finally:
            stop.set()
        count = publishing.result(HANGS_S)
        newest = {*range(count - KEYS, count)}
        command = commands.start("forward", str(path), TIDEGATE_GATEWAY=address)
        eventually(lambda: newest <= {*numbers(server)}, True)
        command.kill()
        command.communicate()
        found = numbers(server)
    if is_whole:
        assert found == [*range(count)]
        return
    for each in range(KEYS):
        of_key = [number for number in found if number % KEYS == each]
        assert of_key == sorted({*of_key})


def stored(server: NatsServer) -> int:
    """How many messages the stream has."""

    async def ask(stream: JetStreamContext) -> int:
        return (await stream.stream_info("prices")).state.messages

    return server.ask(ask)


def await_more(server: NatsServer, before: int) -> None:
    """Return when the stream has more messages than before."""
    eventually(lambda: stored(server) > before, True)


def numbers(server: NatsServer) -> list[int]:
    """The numbers of the messages, in the stream's order."""

    async def ask(stream: JetStreamContext) -> list[int]:
        count = (await stream.stream_info("prices")).state.messages
        reader = await stream.subscribe("px.>", ordered_consumer=True)
        found = [await reader.next_msg(HANGS_S) for _ in range(count)]
        return [msgspec.json.decode(each.data)["n"] for each in found]

    return server.ask(ask)


@rule("forward-6")
def test_a_batch_is_written_again_as_it_was(server: NatsServer, tmp_path: Path) -> None:
    make(server, duplicate_window=1.0)
    batch = FeedBatch([row(b'["a"]', b"1"), row(b'["b"]', b"2")], "e-2")

    def write(after_s: float = 0.0) -> list[bytes]:
        time.sleep(after_s)
        with (
            closing(PositionFile(tmp_path / "position")) as position,
            closing(opened(server, tmp_path)) as target,
        ):
            assert position.resume("identity") == ""
            target.write((position.unfinished or position.begin(batch)).rows)
        return [payload for _, payload, _ in messages(server)]

    assert write() == [b"1", b"2"]
    assert write() == [b"1", b"2"]
    assert write(after_s=2.0) == [b"1", b"2", b"1", b"2"]  # the stream has forgotten the ids
    with closing(PositionFile(tmp_path / "position")) as position:
        position.resume("identity")
        position.note("e-2")
    with closing(PositionFile(tmp_path / "position")) as position:
        assert (position.resume("identity"), position.unfinished) == ("e-2", None)
        position.begin(batch)
    with closing(PositionFile(tmp_path / "position")) as position:
        assert (position.resume("another"), position.unfinished) == ("", None)


def test_a_bucket_may_be_the_target(server: NatsServer, tmp_path: Path) -> None:
    async def buckets(stream: JetStreamContext) -> None:
        await stream.create_key_value(KeyValueConfig(bucket="px", history=5))

    async def keys(stream: JetStreamContext) -> list[str]:
        return await (await stream.key_value("px")).keys()

    server.ask(buckets)
    text = file(server, subject="$KV.px.{key/0}").replace('"prices", sub', '"KV_px", sub')
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("prices", {"key": ["/k"]})
        gateway.publish("prices", [{"k": "a"}, {"k": "b"}])
        gateway.publish("prices", {"k": "c"})
        with forwarding(tmp_path, text, address):
            eventually(lambda: count(server), 3)
            gateway.delete_records("prices", record_key="a")
            eventually(lambda: count(server), 4)
    assert sorted(server.ask(keys)) == ["b", "c"]


def count(server: NatsServer) -> int:
    async def ask(stream: JetStreamContext) -> int:
        return (await stream.stream_info("KV_px")).state.messages

    return server.ask(ask)


def test_rows_that_are_refused_are_returned_and_their_neighbors_arrive(
    server: NatsServer, tmp_path: Path
) -> None:
    make(server, max_msg_size=1_000)
    with closing(opened(server, tmp_path)) as target:
        rows = [
            row(b'["a"]', b"1"),
            row(b'["a"]', b'"%b"' % (b"x" * 2_000)),
            row(b'["a"]', b'"%b"' % (b"x" * 2_000_000)),
            row(b"[]", b"2"),
            row(b'[""]', b"2"),
            *(row(b'["a"]', b"%d" % at) for at in range(500)),
        ]
        refused = target.write(rows)
    assert [each.reason for each in refused] == [
        "the stream refuses it: message size exceeds maximum allowed",
        "it is above the max_payload of the server",
        *["its key does not fill px.{key/0}"] * 2,
    ]
    assert [payload for _, payload, _ in messages(server)] == [
        b"1",
        *(b"%d" % at for at in range(500)),
    ]


@rule("forward-1")
@rule("forward-6")
def test_a_row_that_is_refused_for_now_is_not_overtaken_by_its_key(
    server: NatsServer, tmp_path: Path
) -> None:
    make(server, max_bytes=2_000, discard=DiscardPolicy.NEW)
    large = b'"%b"' % (b"x" * 3_000)
    given = [(b'["a"]', b"0"), (b'["a"]', large), (b'["b"]', b"2"), (b'["a"]', b"3")]
    rows = [replace(row(*each), message_id=f"batch-{at}") for at, each in enumerate(given)]
    with (
        closing(opened(server, tmp_path)) as target,
        pytest.raises(EndpointUnavailable, match="stream prices: maximum bytes exceeded"),
    ):
        target.write(rows)

    async def widen(stream: JetStreamContext) -> None:
        config = (await stream.stream_info("prices")).config
        await stream.update_stream(config, max_bytes=1_000_000)

    server.ask(widen)
    with closing(opened(server, tmp_path)) as target:
        assert target.write(rows) == []
    stored = [(subject, payload) for subject, payload, _ in messages(server)]
    assert [payload for subject, payload in stored if subject == "px.a"] == [b"0", large, b"3"]
    assert stored.count(("px.b", b"2")) == 1


def test_a_row_is_refused_whose_header_or_subject_is_too_much_for_the_server(
    server: NatsServer, tmp_path: Path
) -> None:
    with closing(opened(server, tmp_path)) as target:
        rows = [
            row(b'["a"]', b'"%b"' % (b"x" * (1024 * 1024 - 10))),
            row(b'["%b"]' % (b"x" * 5_000), b"1"),
            row(b'["a"]', b"2"),
        ]
        refused = target.write(rows)
    assert [each.row for each in refused] == rows[:2]
    assert [payload for _, payload, _ in messages(server)] == [b"2"]


def test_what_is_missing_or_refuses_is_a_sentence(server: NatsServer, tmp_path: Path) -> None:
    text = file(server).replace('"prices", sub', '"other", sub')
    [definition] = definitions(tmp_path, text, "http://127.0.0.1:8080")
    with (
        closing(definition.sink.target("a", Patience(time.sleep, print))) as target,
        pytest.raises(EndpointRefused, match="has no stream other"),
    ):
        target.open()
    with (
        closing(opened(server, tmp_path, subject="py.a")) as target,
        pytest.raises(EndpointRefused, match=r"stream prices does not take py\.a: no stream"),
    ):
        target.write([row(b"[1]", b"1")])


def test_a_server_that_ends_is_a_sentence(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        make(server)
        target = opened(server, tmp_path)
        target.write([row(b"[1]", b"1")])
    with closing(target), pytest.raises(EndpointUnavailable, match=rf"NATS at .*:{server.port}: "):
        target.write([row(b"[1]", b"1")])


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the connection is left to the collector
def test_a_server_that_hangs_holds_up_no_other_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipeline.nats_server.ANSWER_SECONDS_MAX", 1.0)
    # More than the kernel takes for a peer that reads nothing.
    rows = [row(b"[%d]" % at, b'"%b"' % (b"x" * 200_000)) for at in range(100)]
    with ThreadPoolExecutor(1) as threads, nats_server(tmp_path) as server:
        make(server)
        target = opened(server, tmp_path)
        server.hang()
        with pytest.raises(EndpointUnavailable, match=rf"NATS at .*:{server.port}: "):
            target.write(rows)
        threads.submit(target.close).result(HANGS_S)
    del target
    gc.collect()


@pytest.mark.parametrize(
    ("key", "pattern", "subject"),
    [
        (b'["a",1.50]', "{key/1}.{key/0}", "1%2E5.a"),
        (b'["a *>%"]', "x.{key/0}", "x.a%20%2A%3E%25"),
        (b'["\xc3\xa9"]', "x.{key/0}", "x.\u00e9"),
        (b'[{"a":1}]', "x.{key/0}", 'x.%7B"a":1%7D'),
        (b'[""]', "x.{key/0}", None),
        (b"null", "x", "x"),
        (b"null", "x.{key/0}", None),
    ],
)
def test_a_subject_is_made_of_the_key(key: bytes, pattern: str, subject: str | None) -> None:
    assert subject_of(pattern, row(key, b"1")) == subject


@pytest.mark.parametrize("subject", ["a.>", "a.*", "", "a..b", "a b", "a.{key}"])
def test_a_subject_that_is_none_is_refused(tmp_path: Path, subject: str) -> None:
    text = f"""
        [forward.a]
        source = {{topic = "t"}}
        sink = {{kind = "nats", address = "nats://h", stream = "s", subject = "{subject}"}}
    """
    with pytest.raises(DefinitionInvalid, match=r"sink\.subject: expected a subject such as"):
        definitions(tmp_path, text, "http://127.0.0.1:8080")
