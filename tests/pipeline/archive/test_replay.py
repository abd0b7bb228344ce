"""An archive is published again: in order, removals too, once, at any kill."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.pipeline.archive.archives import NOON_MS, archive, files, removal, row, unheard
from tests.pipeline.archive.served import Served, gateway
from tests.pipeline.archive.test_replaying import ManualClock
from tests.pipeline.children import Child
from tests.support.deadlines import HANGS_S
from tests.support.rules import rule
from tidegate.clients.answers import Published
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.archive.folder import TopicFolder, TopicShape
from tidegate.pipeline.archive.replay import (
    Progress,
    ReplayArguments,
    checkpoint_of,
    publish,
    replay,
)
from tidegate.pipeline.archive.replaying import Totals
from tidegate.pipeline.errors import ArchiveUnusable, GatewayRefused, HistoryInvalid
from tidegate.pipeline.operations.shutdown import CutOff
from tidegate.pipeline.operations.status import PROGRESS_EVERY_S


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with gateway() as found:
        yield found


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = TopicFolder(tmp_path / "kept", "ticks")
    archive(folder, [row(1), row(2, name="b"), removal(3)], [row(4, NOON_MS + 5_000)])
    archive(folder, [row(1, name="c")], epoch="a0")
    return tmp_path / "kept"


def arguments(path: Path, address: str, topic: str, **given: Any) -> ReplayArguments:
    asked: dict[str, Any] = {
        "path": path,
        "topic": topic,
        "gateway": address,
        "checkpoint": path.parent / f"replay-{topic}",
        "time_unit": "auto",
        "keys": [],
    }
    names = ("source_topic", "rate", "max_gap", "from_time", "until_time", "time_field")
    return ReplayArguments(**{**dict.fromkeys(names), **asked, **given})


PUBLISHED = [
    {"k": "a", "n": 1},
    {"k": "b", "n": 2},
    '["a"]',
    {"k": "a", "n": 4},
    {"k": "c", "n": 1},
]


def test_all_is_published_in_order_removals_too(served: Served, kept: Path) -> None:
    served.define("keyed", key=["/k"])
    reported: list[str] = []
    clock = ManualClock()
    asked = arguments(kept, served.address, "keyed", rate="1x", max_gap="2s")
    assert publish(asked, clock, reported.append).messages == 5
    assert served.values("keyed") == PUBLISHED
    assert round(clock.now_s() - 100, 2) == 2.02
    assert reported == ["keyed: 5 messages published, up to 2024-10-04T12:00:05.001Z"]
    assert publish(asked, ManualClock(), reported.append).messages == 5, (
        "a finished replay begins anew"
    )
    assert len(served.values("keyed")) == 10


def test_a_topic_without_key_has_no_records_to_remove(served: Served, kept: Path) -> None:
    reported: list[str] = []
    asked = arguments(kept, served.address, "plain", until_time=str(NOON_MS + 1))
    assert publish(asked, ManualClock(), reported.append) == Totals(2, passed=1, clock_ms=NOON_MS)
    assert served.values("plain") == PUBLISHED[:2]
    assert "1 removal passed over" in reported[-1]


def test_a_missing_topic_gets_the_key_of_what_is_replayed(served: Served, kept: Path) -> None:
    """So its state of the world is that of the archived topic."""
    TopicFolder(kept, "ticks").write_shape(TopicShape(["/k"]))
    reported: list[str] = []
    asked = arguments(kept, served.address, "ticks.again")
    publish(asked, ManualClock(), reported.append)
    assert reported[0] == "ticks.again: made with the key /k"
    assert served.values("ticks.again") == PUBLISHED
    assert served.records("ticks.again") == {
        '["a"]': {"k": "a", "n": 4},
        '["b"]': {"k": "b", "n": 2},
        '["c"]': {"k": "c", "n": 1},
    }
    publish(replace(asked, keys=["/n"]), ManualClock(), reported.append)
    assert not any("made" in line for line in reported[1:]), "a topic that is there keeps its key"


def test_a_key_that_is_given_goes_before_the_archived_one(served: Served, kept: Path) -> None:
    TopicFolder(kept, "ticks").write_shape(TopicShape(["/k"]))
    reported: list[str] = []
    asked = arguments(kept, served.address, "by.two", until_time=str(NOON_MS), keys=["/k, /n"])
    publish(asked, ManualClock(), reported.append)
    assert reported[0] == "by.two: made with the key /k,/n"


def test_without_any_key_it_says_that_there_are_no_records(served: Served, kept: Path) -> None:
    reported: list[str] = []
    publish(arguments(kept, served.address, "keyless"), ManualClock(), reported.append)
    assert reported[0] == "keyless: is made without a key, so without records; see --key"
    TopicFolder(kept, "ticks").write_shape(TopicShape([]))
    publish(arguments(kept, served.address, "keyless.too"), ManualClock(), reported.append)
    assert reported[2] == "keyless.too: made with no key"


def test_a_damaged_shape_is_a_sentence(kept: Path) -> None:
    (kept / "topic=ticks" / "_topic.json").write_text("{")
    with pytest.raises(ArchiveUnusable, match=r"_topic\.json: cannot be read: "):
        publish(arguments(kept, "http://127.0.0.1:1", "t"), ManualClock(), unheard)


class Killed(BaseException):
    pass


@rule("archive-4")
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_kill_neither_loses_nor_doubles(
    served: Served, kept: Path, monkeypatch: pytest.MonkeyPatch, place: str, number: int
) -> None:
    """Killed before a request is taken, and after that before it is answered."""
    topic = f"killed.{place}.{number}"
    served.define(topic, key=["/k"])
    taken = Gateway.publish_body
    calls = 0

    def killed(self: Gateway, *given: Any) -> Published:
        nonlocal calls
        calls += 1
        if calls == number and place == "after":
            taken(self, *given)
        if calls == number:
            raise Killed
        return taken(self, *given)

    asked = arguments(kept, served.address, topic, rate="1x")
    with monkeypatch.context() as patched:
        patched.setattr(Gateway, "publish_body", killed)
        with pytest.raises(Killed):
            publish(asked, ManualClock(), unheard)
    other_speed = arguments(kept, served.address, topic)
    totals = publish(other_speed, ManualClock(), unheard)
    assert served.values(topic) == PUBLISHED
    assert bool(totals.repeated) == (place == "after")


def test_the_same_command_continues_a_stopped_replay(served: Served, kept: Path) -> None:
    served.define("stopped", key=["/k"])
    asked = arguments(kept, served.address, "stopped", rate="1x")
    publish(asked, ManualClock(stops_s=3), unheard)
    assert served.values("stopped") == PUBLISHED[:3]
    publish(asked, ManualClock(), unheard)
    assert served.values("stopped") == PUBLISHED


@rule("archive-4")
def test_a_gateway_that_hangs_holds_up_the_end_until_the_second_signal(
    served: Served, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was under way is sent again."""
    served.define("hung", key=["/k"])
    asked = arguments(kept, served.address, "hung")
    taken = Gateway.publish_body

    def hang(self: Gateway, *given: Any) -> Published:
        taken(self, *given)
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        raise AssertionError("it hangs no more")

    with monkeypatch.context() as patched:
        patched.setattr(Gateway, "publish_body", hang)
        with pytest.raises(CutOff) as cut:
            replay(asked)
    assert cut.value.exit_code == 130
    assert publish(asked, ManualClock(), unheard).repeated == 5
    assert served.values("hung") == PUBLISHED


@rule("archive-4")
def test_what_was_sent_is_sent_again_where_an_earlier_end_is_asked_for_by_now(
    served: Served, kept: Path
) -> None:
    """The request that was noted is what the gateway may know, whatever is asked now."""
    served.define("shorter", key=["/k"])
    asked = arguments(kept, served.address, "shorter", rate="1x")
    publish(asked, ManualClock(stops_s=3), unheard)
    assert served.values("shorter") == PUBLISHED[:3]
    shorter = replace(asked, until_time=str(NOON_MS))
    assert publish(shorter, ManualClock(), unheard).repeated == 3
    assert served.values("shorter") == PUBLISHED[:3]


def test_what_was_sent_last_must_be_there(served: Served, kept: Path) -> None:
    served.define("lost", key=["/k"])
    asked = arguments(kept, served.address, "lost", rate="1x")
    publish(asked, ManualClock(stops_s=3), unheard)
    files(TopicFolder(kept, "ticks"))[0].unlink()
    with pytest.raises(ArchiveUnusable, match="position 3, the last one sent, is gone"):
        publish(asked, ManualClock(), unheard)


def test_lines_of_a_file_are_published_too(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(b'{"ts":1000,"n":1}\n{"ts":9000,"n":2}\n')
    clock = ManualClock()
    publish(arguments(path, served.address, "lines", rate="2x", time_field="/ts"), clock, unheard)
    assert [each["n"] for each in served.values("lines")] == [1, 2]
    assert round(clock.now_s() - 100, 2) == 4


def test_a_refused_line_is_an_error_with_its_place_and_what_was_published(
    served: Served, tmp_path: Path
) -> None:
    """What the gateway alone can know, here the key; its own number counts in a request."""
    served.define("placed", key=["/k"])
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "1.ndjson").write_bytes(b'{"k":1}\n\n' * 700)
    (tmp_path / "h" / "2.ndjson").write_bytes(b'{"k":2}\n' * 310 + b'{"n":3}\n{"k":4}\n')
    asked = arguments(tmp_path / "h", served.address, "placed")
    with pytest.raises(GatewayRefused) as raised:
        publish(asked, ManualClock(), unheard)
    said = str(raised.value)
    assert said.startswith("2.ndjson, line 311: the gateway at http://127.0.0.1:"), said
    assert "[key-missing, topic placed]" in said
    assert "(line " not in said
    assert said.endswith("(placed: 1,000 messages published)")
    lines = (tmp_path / "h" / "2.ndjson").read_bytes().replace(b'{"n":3}', b'{"k":3}')
    (tmp_path / "h" / "2.ndjson").write_bytes(lines)
    assert publish(asked, ManualClock(), unheard).messages == 12
    assert [each["k"] for each in served.values("placed")] == [1] * 700 + [2] * 310 + [3, 4]


def test_what_breaks_off_says_what_was_published(served: Served, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b'{"n":1}\n' * 1_000 + b'{"n":"\xff"}\n')
    with pytest.raises(HistoryInvalid) as raised:
        publish(arguments(tmp_path / "a.ndjson", served.address, "broken"), ManualClock(), unheard)
    assert str(raised.value) == (
        "a.ndjson, line 1001: not valid UTF-8, at byte 6 (broken: 0 messages published)"
    )


def test_the_last_line_of_progress_comes_once(served: Served, kept: Path) -> None:
    served.define("silent")
    reported: list[str] = []
    publish(
        arguments(kept, served.address, "silent", rate="1x", until_time=str(NOON_MS + 5_001)),
        ManualClock(),
        reported.append,
    )
    assert len(reported) == len(set(reported)) == 1


@pytest.mark.parametrize(
    ("kind", "media_type", "bodies"),
    [
        ("text", "text/plain", [b"a", b"", b"b\n\xc3\xa9"]),
        ("binary", "application/octet-stream", [b"\x00\xff", b"\n"]),
    ],
)
def test_texts_and_bytes_are_published_again_as_they_were(
    served: Served, tmp_path: Path, kind: str, media_type: str, bodies: list[bytes]
) -> None:
    """And once, whatever is killed: each is a request of its own."""
    source, target = f"{kind}.source", f"{kind}.target"
    for topic in (source, target):
        served.define(topic, type=kind)
    for body in bodies:
        served.post(source, body, media_type)
    folder = TopicFolder(tmp_path / "kept", source)
    texts = [msgspec.json.encode(value).decode() for value in served.values(source)]
    archive(folder, [(at, NOON_MS, None, text, None) for at, text in enumerate(texts, 1)])
    asked = arguments(tmp_path / "kept", served.address, target)
    publish(replace(asked, rate="1"), ManualClock(stops_s=0.5), unheard)
    assert len(served.values(target)) == 1
    assert publish(asked, ManualClock(), unheard).messages == len(bodies)
    assert served.values(target) == served.values(source)


@rule("archive-3")
def test_a_record_that_expired_has_expired_there_too(served: Served, tmp_path: Path) -> None:
    """The reason is kept."""
    served.define("expiring", key=["/k"])
    folder = TopicFolder(tmp_path / "kept", "ticks")
    archive(folder, [row(1), removal(2, reason="expired")])
    publish(arguments(tmp_path / "kept", served.address, "expiring"), ManualClock(), unheard)
    assert [line.get("reason") for line in served.journal("expiring")] == [None, "expired"]


def test_an_outage_is_reported_at_once(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is given up with exit code 3."""
    monkeypatch.setattr("tidegate.pipeline.connection.PATIENCE_S", 1.0)
    assert replay(arguments(kept, "http://127.0.0.1:1", "t")) == 3
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("tidegate: cannot reach the gateway at http://127.0.0.1:1: ")
    assert first.endswith("; trying again for 1 s")
    assert last.startswith("tidegate: cannot reach the gateway")


@pytest.mark.parametrize(
    ("given", "code", "sentence"),
    [
        ({"keys": ["k"]}, 2, "--key is fields such as /symbol,/venue: "),
        ({"rate": "fast"}, 2, "--rate is such as 10x, 1000 (a second) or 500KB, not 'fast'"),
        ({"max_gap": "2"}, 2, "--max-gap: expected 1ms to 1d"),
        ({"from_time": "dawn"}, 2, "--from: expected 2026-11-21T21:37:10Z or ms, not 'dawn'"),
        ({"topic": "tidegate.x"}, 2, "is not a topic to publish to"),
        ({"time_field": "ts"}, 2, "--time-field ts: "),
        ({"time_field": "/ts", "time_unit": "h"}, 2, "--time-unit: expected auto, ms or s"),
        ({"time_unit": "h"}, 2, "--time-unit: expected auto, ms or s"),
        ({"source_topic": "none"}, 2, "no such topic; it has ticks"),
        ({"path": Path("none")}, 2, "no such file"),
        ({}, 3, "cannot reach the gateway"),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    kept: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    code: int,
    sentence: str,
) -> None:
    monkeypatch.setattr("tidegate.pipeline.connection.PATIENCE_S", 0.0)
    asked = {"path": kept, "address": "http://127.0.0.1:1", "topic": "t", **given}
    assert replay(arguments(**{**asked, "checkpoint": kept.parent / "replay"})) == code
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_a_history_without_times_has_no_speed(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "a.ndjson").write_bytes(b"{}\n")
    assert replay(arguments(tmp_path / "a.ndjson", "http://127.0.0.1:1", "t", rate="2x")) == 2
    assert "--time-field is missing" in capsys.readouterr().err


@pytest.mark.system
def test_the_command_stops_at_a_signal_and_continues_later(
    served: Served, kept: Path, tmp_path: Path
) -> None:
    served.define("child", key=["/k"])
    command = [
        sys.executable,
        "-P",
        "-m",
        "tidegate.pipeline",
        "replay",
        "--topic=child",
        "--rate=.1x",
    ]
    command += [f"--gateway={served.address}", f"--checkpoint={tmp_path / 'c'}", "--", str(kept)]
    with Child(command, tmp_path) as first:
        first.await_until(lambda: len(served.values("child")) == 3, HANGS_S)
        assert first.stop(signal.SIGTERM) == 0, first.output()
    command[command.index("--rate=.1x")] = "--rate=1000"
    with Child(command, tmp_path) as second:
        assert second.wait(HANGS_S) == 0, second.output()
    assert served.values("child") == PUBLISHED
    assert not (tmp_path / "c" / "replay.json").exists()


def test_another_beginning_is_another_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = arguments(tmp_path, "http://x", "t", checkpoint=None)
    for each in (asked, asked, replace(asked, rate="2x"), replace(asked, from_time="2026-01-01")):
        with checkpoint_of(each).held():
            pass
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_a_refusal_names_what_was_published(
    kept: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.define("full", key=["/k"])

    def refuse(self: Gateway, *given: Any) -> Published:
        raise GatewayProblem(429, "limit-reached", "A limit is reached")

    monkeypatch.setattr(Gateway, "publish_body", refuse)
    with pytest.raises(GatewayRefused, match=r"still refuses: .* \(full: 0 messages published\)$"):
        publish(arguments(kept, served.address, "full"), ManualClock(), unheard)


def test_a_line_comes_now_and_then_and_never_twice_in_a_row() -> None:
    clock, reported, lines = ManualClock(), list[str](), iter(["a", "a", "b"])
    progress = Progress(reported.append, clock.now_s)
    for waits_s in (1.0, PROGRESS_EVERY_S, PROGRESS_EVERY_S, PROGRESS_EVERY_S):
        clock.wait(waits_s)
        progress.say_if_due(lambda: next(lines))
    assert reported == ["a", "b"]
    progress.say("b")
    progress.say("c")
    assert reported == ["a", "b", "c"]
