"""An archive is published again: in order, removals too, once, at any kill."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.archive.folder import TopicFolder
from pipeline.archive.replay import Totals, Wish, mark_of, publish, replay
from pipeline.errors import ArchiveUnusable, GatewayRefused
from pipeline.gateway import Gateway
from tests.pipeline.archive.archives import NOON_MS, archive, files, removal, row, unheard
from tests.pipeline.archive.served import Served, gateway
from tests.pipeline.archive.test_pacing import Turned
from tests.pipeline.children import Child


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


def wish(path: Path, address: str, topic: str, **given: Any) -> Wish:
    asked: dict[str, Any] = {
        "path": path,
        "topic": topic,
        "gateway": address,
        "checkpoint": path.parent / f"mark-{topic}",
        "time_unit": "auto",
    }
    names = ("source_topic", "rate", "max_gap", "from_time", "until_time", "time_field")
    return Wish(**{**dict.fromkeys(names), **asked, **given})


PUBLISHED = [
    {"k": "a", "n": 1},
    {"k": "b", "n": 2},
    '["a"]',
    {"k": "a", "n": 4},
    {"k": "c", "n": 1},
]


def test_all_is_published_in_order_removals_too(served: Served, kept: Path) -> None:
    served.define("keyed", key=["/k"])
    told: list[str] = []
    clock = Turned()
    asked = wish(kept, served.address, "keyed", rate="1x", max_gap="2s")
    assert publish(asked, clock, told.append).messages == 5
    assert served.values("keyed") == PUBLISHED
    assert round(clock.now_s() - 100, 2) == 2.02
    assert told == ["keyed: 5 messages published, up to 2024-10-04T12:00:05.001Z"]
    assert publish(asked, Turned(), told.append).messages == 5, "a finished replay begins anew"
    assert len(served.values("keyed")) == 10


def test_a_topic_without_key_has_no_records_to_remove(served: Served, kept: Path) -> None:
    told: list[str] = []
    asked = wish(kept, served.address, "plain", until_time=str(NOON_MS + 1))
    assert publish(asked, Turned(), told.append) == Totals(2, passed=1, clock_ms=NOON_MS)
    assert served.values("plain") == PUBLISHED[:2]
    assert "1 removals passed over" in told[-1]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_kill_neither_loses_nor_doubles(
    served: Served, kept: Path, monkeypatch: pytest.MonkeyPatch, place: str, number: int
) -> None:
    """Rule 566: killed before a request is taken, and after that before it is answered."""
    topic = f"killed.{place}.{number}"
    served.define(topic, key=["/k"])
    taken = Gateway.publish
    calls = 0

    def killed(self: Gateway, *given: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls == number and place == "after":
            taken(self, *given)
        if calls == number:
            raise Killed
        return taken(self, *given)

    asked = wish(kept, served.address, topic, rate="1x")
    with monkeypatch.context() as patched:
        patched.setattr(Gateway, "publish", killed)
        with pytest.raises(Killed):
            publish(asked, Turned(), unheard)
    other_speed = wish(kept, served.address, topic)
    totals = publish(other_speed, Turned(), unheard)
    assert served.values(topic) == PUBLISHED
    assert bool(totals.repeated) == (place == "after")


def test_who_stops_it_goes_on_with_the_same_command(served: Served, kept: Path) -> None:
    served.define("stopped", key=["/k"])
    asked = wish(kept, served.address, "stopped", rate="1x")
    publish(asked, Turned(stops_s=3), unheard)
    assert served.values("stopped") == PUBLISHED[:3]
    publish(asked, Turned(), unheard)
    assert served.values("stopped") == PUBLISHED


def test_what_was_sent_last_must_be_there(served: Served, kept: Path) -> None:
    served.define("lost", key=["/k"])
    asked = wish(kept, served.address, "lost", rate="1x")
    publish(asked, Turned(stops_s=3), unheard)
    files(TopicFolder(kept, "ticks"))[0].unlink()
    with pytest.raises(ArchiveUnusable, match="position 3, the last one sent, is gone"):
        publish(asked, Turned(), unheard)


def test_lines_of_a_file_are_published_too(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes(b'{"ts":1000,"n":1}\n{"ts":9000,"n":2}\n')
    clock = Turned()
    publish(wish(path, served.address, "lines", rate="2x", time_field="/ts"), clock, unheard)
    assert [each["n"] for each in served.values("lines")] == [1, 2]
    assert round(clock.now_s() - 100, 2) == 4


def test_a_topic_of_texts_is_refused(served: Served, kept: Path) -> None:
    served.define("texts", type="text")
    with pytest.raises(GatewayRefused, match="of type text: only JSON"):
        publish(wish(kept, served.address, "texts"), Turned(), unheard)


@pytest.mark.parametrize(
    ("given", "code", "sentence"),
    [
        ({"rate": "fast"}, 2, "--rate is such as 10x, 1000 (a second) or 500KB, not 'fast'"),
        ({"max_gap": "2"}, 2, "--max-gap: expected 1ms to 1d"),
        ({"from_time": "dawn"}, 2, "--from: expected 2026-11-21T21:37:10Z or ms, not 'dawn'"),
        ({"topic": "tidegate.x"}, 2, "is no topic to publish to"),
        ({"time_field": "ts"}, 2, "--time-field ts: "),
        ({"time_field": "/ts", "time_unit": "h"}, 2, "--time-unit: expected auto, ms or s"),
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
    monkeypatch.setattr("pipeline.archive.replay.Gateway", _impatient)
    asked = {"path": kept, "address": "http://127.0.0.1:1", "topic": "t", **given}
    assert replay(wish(**{**asked, "checkpoint": kept.parent / "mark"})) == code
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def _impatient(address: str) -> Gateway:
    return Gateway(address, patience_s=0)


def test_a_history_without_times_has_no_speed(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "a.ndjson").write_bytes(b"{}\n")
    assert replay(wish(tmp_path / "a.ndjson", "http://127.0.0.1:1", "t", rate="2x")) == 2
    assert "--time-field is missing" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_stops_at_a_signal_and_goes_on(
    served: Served, kept: Path, tmp_path: Path
) -> None:
    served.define("child", key=["/k"])
    command = [sys.executable, "-P", "-m", "pipeline", "replay", "--topic=child", "--rate=.1x"]
    command += [f"--gateway={served.address}", f"--checkpoint={tmp_path / 'c'}", "--", str(kept)]
    with Child(command, tmp_path) as first:
        first.await_until(lambda: len(served.values("child")) == 3, 30)
        assert first.stop(signal.SIGTERM) == 0, first.output()
    command[command.index("--rate=.1x")] = "--rate=1000"
    with Child(command, tmp_path) as second:
        assert second.wait(30) == 0, second.output()
    assert served.values("child") == PUBLISHED
    assert not (tmp_path / "c" / "replay.json").exists()


def test_another_beginning_is_another_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = wish(tmp_path, "http://x", "t", checkpoint=None)
    for each in (asked, asked, replace(asked, rate="2x"), replace(asked, from_time="2026-01-01")):
        with mark_of(each).held():
            pass
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2
