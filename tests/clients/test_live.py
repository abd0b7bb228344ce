"""A live dict follows its topic, through cuts and refusals, and says what changed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import numpy
import pytest

from tests.clients.support.streams import Script, plain, scripted, stream
from tests.support import leftovers
from tests.support.commands import environment, serving_here
from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port
from tidegate.clients.errors import GatewayProblem, GatewayUnreachable
from tidegate.clients.gateway import Gateway
from tidegate.clients.live.live import Live
from tidegate.clients.replica import Changes

BIG = 9007199254740993
GROUP = ("group_begin", "group_end")
APART_S = 0.05  # so that a reader takes what has come before the next event
GOODBYE = b'event: goodbye\nretry: 1\ndata: {"reason":"UNSUBSCRIBED","reconnect":false}\n\n'


def event(name: str, fields: dict[str, Any], id_text: str = "") -> bytes:
    head = f"event: {name}\n" if name != "message" else ""
    named = f"id: {id_text}\n" if id_text else ""
    return f"{head}{named}data: {json.dumps(fields)}\n\n".encode()


def hello(id_text: str = "", topic: str = "px") -> bytes:
    entry = {"sub": "s1", "topic": topic, "options": "conflation=1s,oof"}
    fields = {"session": "s", "heartbeat_ms": 20000, "subscriptions": [entry]}
    return event("hello", fields, id_text)


def batch(number: int, *rows: tuple[str, Any, Any], more: bool = False) -> bytes:
    shown = [{"topic": "px", "op": op, "key": key, "value": value} for op, key, value in rows]
    fields = {"sub": "s1", "topic": "px", "rows": shown, **({"more": True} if more else {})}
    return event("message", fields, f"e-{number}")


def snapshot(number: int, *rows: tuple[Any, Any]) -> bytes:
    group = {"sub": "s1", "topic": "px", "rows": len(rows)}
    middle = batch(number, *(("snapshot", key, value) for key, value in rows))
    return event("group_begin", group) + middle + event("group_end", group, f"e-{number}")


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    """Holds a scripted stream open; let go at the end."""
    waits = threading.Event()
    yield waits
    waits.set()


def await_until(live: Live, what: Any) -> None:
    """Waits until the records are as they should be, and fails when they never are."""
    for _ in live.changes(HANGS_S):
        if what(live):
            return
    raise AssertionError(f"it never came: {dict(live)}")


def test_a_pattern_reports_the_topics_that_it_leaves_out() -> None:
    """Where it has grown beyond what a session may have, and where it begins as large."""
    told: list[str] = []
    with (
        serving_here(session_subscriptions_max=2) as address,
        Gateway(address) as gateway,
    ):
        for name in ("q.b", "q.c"):
            gateway.put_topic(name, {"key": ["/id"]})
            gateway.publish(name, {"id": name})
        with gateway.live("q.*", trouble=told.append) as live:
            gateway.put_topic("q.a", {"key": ["/id"]})
            gateway.publish("q.b", {"id": "last"})
            await_until(live, lambda live: ("q.b", "last") in live)
        assert [sentence.partition(":")[0] for sentence in told] == ["q.a"]
        assert "session_subscriptions_max" in told[0]
        with gateway.live("q.*", trouble=told.append) as live:
            assert {topic for topic, _ in live} == {"q.b"}
            gateway.publish("q.a", {"id": "last"})
            await_until(live, lambda live: ("q.a", "last") in live)
        assert told[1].startswith("q.*: ")
        assert told[1].endswith("Left out: q.c.")


def test_it_is_whole_when_its_block_is_entered(hang: threading.Event) -> None:
    rows = ((["a"], {"v": BIG}), (["b"], 2))
    with (
        scripted(stream(hello(), snapshot(1, *rows), then_hang=hang)) as fake,
        Gateway(fake.address) as gateway,
        gateway.live("px", options="conflation=1s,", order_by="/v", deltas=True) as live,
    ):
        assert dict(live) == {"a": {"v": BIG}, "b": 2}
        assert (len(live), list(live), "a" in live, "c" in live) == (2, ["a", "b"], True, False)
        assert live.granted == "conflation=1s,oof"
        with pytest.raises(KeyError):
            live["c"]
        assert live.row("c") is None
        assert fake.requests[0][1] == {
            "options": "conflation=1s,oof", "order_by": "/v", "format": "batch",
            "command": "sow_and_delta_subscribe",
        }  # fmt: skip
    assert (live.end, live.error) == ("CLOSED", None)
    assert live["a"] == {"v": BIG}
    assert "tidegate-live" not in [thread.name for thread in threading.enumerate()]


def test_keys_are_those_of_the_topic(hang: threading.Event) -> None:
    rows = ((["a", 1], 1), (["a", None], 2), (["a", [1, 2]], 3), ([BIG, True], 4))
    script = stream(hello(), snapshot(1, *rows), then_hang=hang)
    with scripted(script) as fake, Gateway(fake.address) as gateway, gateway.live("px") as live:
        assert [live[key] for key in live] == [1, 2, 3, 4]
        assert live["a", 1] == 1
        assert (live["a", (1, 2)], live[BIG, True]) == (3, 4)
        assert (BIG - 1, True) not in live
        assert (BIG, 1) not in live
        assert live["a", numpy.float32(1)] == 1
        assert live[numpy.int64(BIG), numpy.True_] == 4


def test_the_changes_of_several_flushes_are_one(hang: threading.Event) -> None:
    flushes = (
        batch(2, ("publish", ["a"], 2)),
        batch(3, ("publish", ["a"], 3), ("oof", ["b"], None)),
        batch(4, ("publish", ["c"], 4)),
    )
    script = stream(hello(), snapshot(1, (["a"], 1), (["b"], 1)), then_hang=hang)
    with scripted(script) as fake, Gateway(fake.address) as gateway, gateway.live("px") as live:
        changes = live.changes(HANGS_S)
        first = next(changes)
        assert [(row.key, row.value) for row in first.added] == [(["a"], 1), (["b"], 1)]
        for flush in flushes:  # applied here, so that no thread decides what is one
            _feed(live, flush)
        later = next(changes)
        assert [(row.value, row.previous) for row in later.changed] == [(3, 1)]
        assert [row.key for row in later.removed] == [["b"]]
        assert [row.key for row in later.added] == [["c"]]
        changes.close()  # type: ignore[attr-defined]  # a generator
        assert not live._readers


def in_parts() -> tuple[bytes, ...]:
    """A snapshot and a flush, each of which comes in several events."""
    begin, end = (event(name, {"sub": "s1", "topic": "px", "rows": 2}) for name in GROUP)
    return (
        hello(),
        begin,
        batch(1, ("snapshot", ["a"], 1)),
        batch(1, ("snapshot", ["b"], 1)),
        end,
        batch(2, ("publish", ["a"], 2), more=True),
        batch(3, ("publish", ["b"], 2)),
    )


def test_a_step_is_a_whole_snapshot_or_a_whole_flush(hang: threading.Event) -> None:
    script = stream(*in_parts(), then_hang=hang, apart_s=APART_S)
    with scripted(script) as fake, Gateway(fake.address) as gateway:
        live = gateway.live("px")
        steps = live.changes(HANGS_S)
        assert [len(next(steps)) for _ in range(2)] == [2, 2]
        live.close()


def test_a_flush_whose_rest_never_comes_is_a_step(hang: threading.Event) -> None:
    flush = batch(2, ("publish", ["a"], 2), more=True)
    with (
        scripted(stream(hello(), snapshot(1), flush, then_hang=hang)) as fake,
        Gateway(fake.address) as gateway,
        gateway.live("px") as live,
    ):
        assert len(next(live.changes(HANGS_S))) == 1


def _feed(live: Live, chunk: bytes) -> None:
    from tidegate.clients.sse import Parser

    for each in Parser().feed(chunk):
        assert live._take(each, print)


def test_changes_end_after_their_time_and_with_the_subscription(hang: threading.Event) -> None:
    quiet = stream(hello(), snapshot(1), then_hang=hang)
    with scripted(quiet) as fake, Gateway(fake.address) as gateway, gateway.live("px") as live:
        assert list(live.changes(0.05)) == []
    ended = stream(hello(), snapshot(1, (["a"], 1)), GOODBYE)
    with scripted(ended) as fake, Gateway(fake.address) as gateway, gateway.live("px") as live:
        assert [len(changes) for changes in live.changes()] == [1]
        assert (live.end, live.error) == ("UNSUBSCRIBED", None)


def test_records_that_there_is_no_room_for_are_refused_by_name() -> None:
    refused = (
        b"event: refused\ndata: %s\n\n"
        % json.dumps(
            {"title": "A limit is reached", "status": 429, "code": "limit-reached"}
        ).encode()
    )
    with scripted(stream(refused)) as fake, Gateway(fake.address) as gateway:
        live = gateway.live("px", trouble=lambda sentence: None)
        with pytest.raises(GatewayUnreachable, match=r"no records of px in 1 s: .*limit-reached"):
            live.ready(1)
        assert isinstance(live.outage, GatewayProblem)
        assert live.outage.code == "limit-reached"
        live.close()


def test_its_topic_is_deleted_while_its_connection_is_lost() -> None:
    """It ends as it does while it is connected: the records are removed."""
    scripts = stream(hello(), snapshot(1, (["a"], 1))), plain(204)
    with (
        scripted(*scripts) as fake,
        Gateway(fake.address) as gateway,
        gateway.live("px") as live,
    ):
        removed = [row for changes in live.changes(HANGS_S) for row in changes.removed]
        assert [(row.key, row.reason) for row in removed] in ([(["a"], "deleted")], [])
        assert (dict(live), live.end, live.error) == ({}, "REMOVED", None)


def test_a_topic_without_key_is_followed_without_removals(hang: threading.Event) -> None:
    refusal = b'{"title":"Not valid options","status":400,"code":"options-invalid"}'
    scripts = (
        plain(400, refusal, "application/problem+json"),
        stream(hello("e-0"), batch(1, ("publish", None, 7)), then_hang=hang),
    )
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway, gateway.live("px") as live:
        await_until(live, lambda live: live[None] == 7)
        assert list(live) == [None]
        assert [query.get("options") for _, query in fake.requests] == ["oof", None]


@pytest.mark.parametrize(
    ("wish", "asked"),
    [({"removals": True}, "oof"), ({"removals": False}, None), ({"command": "subscribe"}, None),
     ({"options": "oof"}, "oof"), ({"options": "bookmark=epoch"}, "bookmark=epoch")],
)  # fmt: skip
def test_a_refusal_is_raised_where_the_block_is_entered(
    wish: dict[str, Any], asked: str | None
) -> None:
    refusal = b'{"title":"Not valid options","status":400,"code":"options-invalid"}'
    with (
        scripted(plain(400, refusal, "application/problem+json")) as fake,
        Gateway(fake.address) as gateway,
    ):
        live = gateway.live("px", **wish)
        with pytest.raises(GatewayProblem, match="options-invalid"), live:
            pass
        with pytest.raises(GatewayProblem, match="options-invalid"):
            list(live.changes())
        assert live.end.startswith("Not valid options")
        if wish != {"options": "oof"}:
            assert [query.get("options") for _, query in fake.requests] == [asked]


OF_KEY = "with oof the key is that of the topic; for another one use grouping and projection."
NO_KEY = "oof needs a topic with a key."
LEFT_OUT = "; removals=False leaves removals out."


@pytest.mark.parametrize(
    ("options", "detail", "position", "topic", "requests", "hint"),
    [("", NO_KEY, 0, "px", 2, ""), ("timestamp , ", NO_KEY, 10, "px", 2, ""),
     ("conflation=1s,conflation_key=[/g]", OF_KEY, 14, "px", 1, LEFT_OUT),
     ("", NO_KEY, 0, "p*", 1, LEFT_OUT), ("oof", NO_KEY, 0, "px", 1, ""),
     ("bad", "unknown option bad.", 0, "px", 1, "")],
)  # fmt: skip
def test_a_refusal_of_removals_stands_where_the_topic_has_a_key(
    options: str, detail: str, position: int, topic: str, requests: int, hint: str
) -> None:
    """Without them its deleted records would stay; only a topic without a key has none to tell."""
    refusal = {"title": "No", "code": "options-invalid", "detail": detail, "position": position}
    script = plain(400, json.dumps(refusal).encode(), "application/problem+json")
    with scripted(script) as fake, Gateway(fake.address) as gateway:
        with pytest.raises(GatewayProblem) as raised, gateway.live(topic, options=options):
            pass
        assert (raised.value.detail, raised.value.position) == (
            detail.removesuffix("." if hint else "") + hint,
            position,
        )
        assert len(fake.requests) == requests


def test_a_dict_of_another_key_has_no_removals_only_if_they_are_left_out() -> None:
    options = "conflation=50ms,conflation_key=[/venue]"
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("px", {"key": ["/id"]})
        gateway.publish("px", [{"id": 1, "venue": "A"}, {"id": 2, "venue": "B"}])
        with (
            pytest.raises(GatewayProblem, match=r"position 16.*removals=False"),
            gateway.live("px", options=options),
        ):
            pass
        with gateway.live("px", options=options, removals=False) as live:
            assert live.granted == "conflation=50ms,conflation_key=[/venue],pace=batch"
        with gateway.live("px", options="conflation=50ms,conflation_key=[/id]") as live:
            gateway.delete_records("px", record_key=1)
            await_until(live, lambda live: list(live) == [2])


REFUSAL = plain(400, b'{"code":"options-invalid"}', "application/problem+json")


def modules_in(error: BaseException) -> list[str]:
    """The modules of the client that a traceback shows, of causes and contexts as well."""
    text = "".join(traceback.format_exception(error))
    return re.findall(r"tidegate/clients/([\w/]+\.py)", text)


def test_a_refusal_shows_where_it_was_raised_and_nothing_of_how_it_was_found() -> None:
    """Also the second time, and although a request with removals came before it."""
    with scripted(REFUSAL) as fake, Gateway(fake.address) as gateway:
        live = gateway.live("px")
        for wait in (live.ready, lambda: list(live.changes()), live.ready):
            with pytest.raises(GatewayProblem) as raised:
                wait()
            assert modules_in(raised.value) == ["live/live.py"]
        assert len(fake.requests) == 2


def test_a_gateway_that_is_not_there_is_raised() -> None:
    with (
        Gateway("http://127.0.0.1:1") as gateway,
        pytest.raises(GatewayUnreachable, match=":1"),
        gateway.live("px"),
    ):
        pass


def test_a_delta_without_its_record_begins_again(hang: threading.Event) -> None:
    scripts: tuple[Script, ...] = (
        stream(hello(), snapshot(1, (["a"], 1)), batch(2, ("delta", ["b"], {"v": 1}))),
        stream(hello(), snapshot(3, (["a"], 1), (["b"], {"v": 1, "w": 2})), then_hang=hang),
    )
    seen = Changes()
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway, gateway.live("px") as live:
        for changes in live.changes(HANGS_S):
            seen.join(changes)
            if "b" in live:
                break
        assert [after for after, _ in fake.requests] == [None, None]
        assert live["b"] == {"v": 1, "w": 2}
        assert len(seen.added) == 2


def test_changes_that_follow_a_snapshot_that_was_cut_off_are_read(hang: threading.Event) -> None:
    """As where one gateway of several does not know the reader's place yet, and another does."""
    resumed = {"sub": "s1", "topic": "px", "mode": "changes", "gap_messages": 1, "not_found": None}
    scripts: tuple[Script, ...] = (
        stream(hello(), snapshot(1, (["a"], 1), (["b"], 1))),
        stream(hello(), event("group_begin", {"sub": "s1", "topic": "px", "rows": 2})),
        stream(hello(), event("resumed", resumed), batch(2, ("publish", ["a"], 2)), then_hang=hang),
    )
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway, gateway.live("px") as live:
        await_until(live, lambda live: dict(live) == {"a": 2, "b": 1})
        assert [after for after, _ in fake.requests] == [None, "e-1", "e-1"]


def test_a_reader_that_was_too_slow_begins_again_with_its_records(hang: threading.Event) -> None:
    ended = event("unsubscribed", {"sub": "s1", "topic": "px", "reason": "BACK_PRESSURE"})
    scripts: tuple[Script, ...] = (
        stream(hello(), snapshot(1, (["a"], 1), (["b"], 1)), ended + GOODBYE),
        stream(hello(), snapshot(3, (["a"], 1), (["c"], 1)), then_hang=hang),
    )
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway, gateway.live("px") as live:
        await_until(live, lambda live: list(live) == ["a", "c"])
        assert [after for after, _ in fake.requests] == [None, None]
        assert not live.end


def test_a_fault_in_the_thread_ends_it_and_is_raised() -> None:
    with (
        scripted(stream(hello(), event("message", {"no": "envelope"}))) as fake,
        Gateway(fake.address) as gateway,
        pytest.raises(Exception, match="not an envelope"),
        gateway.live("px"),
    ):
        pass


@pytest.mark.parametrize("deltas", [True, False])
def test_it_is_the_state_of_the_world_of_a_real_gateway(deltas: bool) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("px", {"key": ["/id"]})
        gateway.publish("px", [b'{"id":"a","n":1,"pad":"xxxxxxxxxxxxxxxxxxxxxxxxxx"}'])
        with gateway.live("px", options="conflation=20ms", deltas=deltas) as live:
            assert live["a"]["n"] == 1
            for n in range(30):
                line = {"id": f"k{n % 7}", "n": n, "big": BIG + n, "pad": "x" * 50}
                gateway.publish("px", [json.dumps(line).encode()])
            gateway.publish("px", [b'{"id":"last"}'])
            await_until(live, lambda live: "last" in live)
            world = {row["id"]: row for row in map(json.loads, gateway.sow("px"))}
            assert dict(live) == world
            gateway.delete_topic("px")
            for _ in live.changes(HANGS_S):
                pass
            assert (dict(live), live.end) == ({}, "REMOVED")


def test_a_record_that_cannot_be_read_is_reported_and_the_dict_lives_on(
    hang: threading.Event,
) -> None:
    told: list[str] = []
    bad = batch(2, ("publish", ["a"], "BEYOND")).replace(b'"BEYOND"', b'{"v":1e400}')
    rows = ((["a"], {"v": 1}), (["b"], {"v": 1}))
    later = batch(3, ("publish", ["b"], {"v": 2}))
    with (
        scripted(stream(hello(), snapshot(1, *rows), bad, later, then_hang=hang)) as fake,
        Gateway(fake.address) as gateway,
        gateway.live("px", trouble=told.append) as live,
    ):
        await_until(live, lambda live: dict(live) == {"b": {"v": 2}})
        assert told == ['record ["a"] of px cannot be read: Number out of range']
        assert live.end == ""


FORKING = """
import os, sys
from tidegate.clients.gateway import Gateway

gateway = Gateway(sys.argv[1])
live, ended = gateway.live("px"), gateway.live("px")
live.ready()
with ended:
    pass
process = os.fork()
if not process:
    assert [dict(live), dict(ended)] == [{1: {"k": 1, "v": 1}}] * 2, (dict(live), dict(ended))
    gateway.publish("px", [{"k": 1, "v": 2}])
for changes in live.changes(60):
    if live[1]["v"] == 2:
        break
assert (live[1]["v"], live.outage) == (2, None)
if not process:
    live.close()
    gateway.publish("px", [{"k": 2}])
    sys.exit()
for changes in live.changes(60):
    if 2 in live:
        break
assert live._subscription.connections == 1
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


@pytest.mark.system
def test_a_forked_process_follows_the_topic_itself() -> None:
    """As under gunicorn with `--preload`: made before the fork, used in both processes after it."""
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("px", {"key": ["/k"]})
        gateway.publish("px", [b'{"k":1,"v":1}'])
        command = [sys.executable, "-P", "-c", FORKING, address]
        subprocess.run(command, env=environment(), check=True, timeout=HANGS_S)


def processes_that_show(address: str, value: int, count: int) -> set[int]:
    """Ask the application until so many of its processes have answered with this value."""
    processes: set[int] = set()
    until_s = time.monotonic() + HANGS_S
    while len(processes) < count:
        assert time.monotonic() < until_s, processes
        with contextlib.suppress(OSError), urlopen(address, timeout=HANGS_S) as answer:
            shown = json.load(answer)
            if shown["records"] == [{"k": 1, "v": value}] and shown["outage"] is None:
                processes.add(shown["process"])
    return processes


@pytest.mark.nightly
def test_workers_of_gunicorn_follow_the_topic_themselves() -> None:
    """With `--preload`, and after one was killed: its successor is forked from the same parent."""
    port = lasting_port()
    served = f"http://127.0.0.1:{port}"
    words = ["--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}"]
    app = "tests.clients.support.preloaded_app:app"
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("px", {"key": ["/k"]})
        gateway.publish("px", [b'{"k":1,"v":1}'])
        variables = {**environment(), "TIDEGATE_TEST_GATEWAY": address}
        command = [sys.executable, "-m", "gunicorn", *words, app]
        gunicorn = subprocess.Popen(command, env=variables, process_group=0, text=True)
        leftovers.watch(gunicorn)
        first = processes_that_show(served, 1, count=2)
        gateway.publish("px", [b'{"k":1,"v":2}'])
        assert processes_that_show(served, 2, count=2) == first
        os.kill(min(first), signal.SIGKILL)
        gateway.publish("px", [b'{"k":1,"v":3}'])
        second = processes_that_show(served, 3, count=2)
        assert first & second == {max(first)}
        gunicorn.terminate()
        assert gunicorn.wait(HANGS_S) == 0
