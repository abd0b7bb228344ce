"""What a replay sends, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tidegate.clients.answers import Published
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.keys.text.rate import Rate, parse_rate
from tidegate.pipeline.archive.recorded import Recorded, RecordedPlace, SourceLocation
from tidegate.pipeline.archive.replaying import (
    BURST_S,
    MESSAGES_PER_REQUEST,
    PRODUCER_PREFIX,
    Clock,
    Pacing,
    ReplayCheckpoint,
    Replaying,
    ReplayState,
    Totals,
    body_of,
    media_type_of,
    messages_max_of,
    requests,
)
from tidegate.pipeline.errors import (
    CheckpointUnusable,
    GatewayRefused,
    HistoryInvalid,
    InUse,
    RunFenced,
)


class Taking:
    """A gateway that has one topic."""

    def __init__(self, definition: dict[str, Any] | None) -> None:
        self.sent: list[tuple[bytes, int, str]] = []
        self.base_url = "http://a"
        self.refusal: GatewayProblem | None = None
        self.is_new = True
        self._definition = definition

    def find_topic(self, topic: str) -> dict[str, Any] | None:
        return self._definition

    def publish_body(
        self, topic: str, body: bytes, producer: str, sequence: int, media_type: str
    ) -> Published:
        if self.refusal is not None:
            raise self.refusal
        self.sent.append((body, sequence, media_type))
        return Published(topic, 1, None, None, duplicate=not self.is_new)


Begin = Callable[[Taking], Replaying]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    checkpoint = ReplayCheckpoint(tmp_path, "a to b")
    with checkpoint.held() as noted:
        yield lambda gateway: Replaying(cast("Gateway", gateway), "t", checkpoint, noted)


def message(number: int, value: bytes | None = b"1") -> Recorded:
    location, reason = SourceLocation("a.ndjson", "line", number * 10), None if value else "deleted"
    return Recorded(location, RecordedPlace("", number), 5, '["a"]', value, reason)


def refusal(line: int | None, code: str = "message-invalid") -> GatewayProblem:
    return GatewayProblem(400, code, "Bad", line=line)


SAID = r"the gateway at http://a refused: Bad \["


def test_what_was_sent_is_counted(begin: Begin) -> None:
    gateway = Taking({"type": "json", "key": []})
    replaying = begin(gateway)
    replaying.send([message(1), message(2, None), message(3)])
    assert replaying.totals == Totals(2, 0, 1, 5)
    gateway.is_new = False
    replaying.send([message(4)])
    assert replaying.line() == (
        "t: 3 messages published, 1 of them by an earlier run, 1 removal passed over: the topic "
        "has no key, up to 1970-01-01T00:00:00.005Z"
    )
    assert [sequence for _, sequence, _ in gateway.sent] == [1, 2]


def test_a_request_of_removals_alone_is_none_where_there_is_no_key(begin: Begin) -> None:
    gateway = Taking(None)
    begin(gateway).send([message(1, None)])
    assert gateway.sent == []


@pytest.mark.parametrize(
    ("code", "kind"), [("message-invalid", GatewayRefused), ("producer-fenced", RunFenced)]
)
def test_an_error_names_the_line_of_the_file(
    begin: Begin, code: str, kind: type[GatewayRefused]
) -> None:
    """Removals that are passed over are no lines of it."""
    gateway = Taking({})
    gateway.refusal = refusal(2, code)
    with pytest.raises(kind, match=rf"^a\.ndjson, line 30: {SAID}{code}\]$"):
        begin(gateway).send([message(1), message(2, None), message(3)])


@pytest.mark.parametrize("line", [None, 3])
def test_a_refusal_of_the_whole_request_names_no_line(begin: Begin, line: int | None) -> None:
    gateway = Taking({})
    gateway.refusal = refusal(line)
    with pytest.raises(GatewayProblem, match=r"^Bad \["):
        begin(gateway).send([message(1), message(2)])


def test_a_request_of_one_is_refused_for_that_one(begin: Begin) -> None:
    gateway = Taking({"type": "text"})
    gateway.refusal = refusal(None)
    replaying = begin(gateway)
    assert replaying.messages_max == 1
    with pytest.raises(GatewayRefused, match=rf"^a\.ndjson, line 10: {SAID}message-invalid\]$"):
        replaying.send([message(1, b'"a"')])


class ManualClock(Clock):
    """A clock that stands still until somebody waits."""

    def __init__(self, stops_s: float | None = None) -> None:
        self._now_s = 100.0
        self._stops_s = stops_s

    def now_s(self) -> float:
        return self._now_s

    def wait(self, seconds: float) -> None:
        self._now_s += seconds

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds

    @property
    def stopped(self) -> bool:
        return self._stops_s is not None and self._now_s >= 100.0 + self._stops_s


def recorded(*times_ms: int, size: int = 10) -> list[Recorded]:
    return [
        Recorded(
            SourceLocation("f", "line", at), RecordedPlace("e1", at), time_ms, None, b"x" * size
        )
        for at, time_ms in enumerate(times_ms)
    ]


def sent(
    messages: list[Recorded],
    rate: str | None,
    gap_s_max: float | None = None,
    clock: ManualClock | None = None,
) -> list[tuple[float, int]]:
    """When each request went, in seconds from the start, and how many messages it had."""
    clock = clock or ManualClock()
    parsed: Rate | None = None if rate is None else parse_rate(rate)
    pacing = Pacing(parsed, gap_s_max, clock.now_s())
    return [
        (round(clock.now_s() - 100, 3), len(request))
        for request in requests(messages, pacing, clock)
    ]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("1x", [(0, 1), (1, 1), (61, 1)]),
        ("10x", [(0, 1), (0.1, 1), (6.1, 1)]),
        (".5X", [(0, 1), (2, 1), (122, 1)]),
        ("1", [(0, 1), (1, 1), (2, 1)]),
        ("10KB", [(0, 1), (1, 1), (2, 1)]),
    ],
)
def test_each_message_goes_when_it_is_due(rate: str, expected: list[tuple[float, int]]) -> None:
    messages = recorded(5_000, 6_000, 66_000, size=10_000)
    assert sent(messages, rate) == expected


def test_a_silence_is_bounded() -> None:
    assert sent(recorded(0, 1_000, 3_600_000), "1x", 2.0) == [(0, 1), (1, 1), (3, 1)]


def test_what_is_due_within_a_tick_shares_a_request() -> None:
    assert sent(recorded(*range(100)), "1x") == [
        (0, 1),
        (0.02, 20),
        (0.04, 20),
        (0.06, 20),
        (0.08, 20),
        (0.1, 19),
    ]


def test_without_a_rate_all_goes_at_once_in_full_requests() -> None:
    messages = recorded(*range(2 * MESSAGES_PER_REQUEST + 1))
    assert sent(messages, None) == [(0, MESSAGES_PER_REQUEST)] * 2 + [(0, 1)]


def test_large_messages_make_short_requests() -> None:
    assert sent(recorded(0, 0, 0, size=300 << 10), None) == [(0, 2), (0, 1)]


def test_who_was_held_up_makes_up_for_a_second_and_no_more() -> None:
    clock = ManualClock()
    pacing = Pacing(parse_rate("1x"), None, clock.now_s())
    went: list[float] = []
    for request in requests(recorded(*range(0, 10_000, 1_000)), pacing, clock):
        went.append(round(clock.now_s() - 100, 3))
        if len(went) == 1:
            clock.sleep(5)  # the gateway was out
        assert request
    assert BURST_S == 1
    assert went == [0, 5, 6, 7, 8, 9, 10, 11, 12]


def test_a_stop_ends_it_after_what_was_given_out() -> None:
    assert sent(recorded(0, 1_000, 9_000), "1x", clock=ManualClock(stops_s=2)) == [(0, 1), (1, 1)]


def test_what_was_noted_is_there_again(tmp_path: Path) -> None:
    checkpoint = ReplayCheckpoint(tmp_path / "checkpoint", "a to b")
    with checkpoint.held() as first:
        assert (first.of, first.sequence) == ("a to b", 0)
        assert first.producer.startswith(PRODUCER_PREFIX)
        noted = ReplayState(
            first.of, first.producer, 7, RecordedPlace("e1", 10), RecordedPlace("e1", 20)
        )
        checkpoint.note(noted)
    with ReplayCheckpoint(tmp_path / "checkpoint", "a to b").held() as again:
        assert again == noted
        checkpoint.forget()
    with checkpoint.held() as anew:
        assert anew.sequence == 0
        assert anew.producer != first.producer


def test_one_process_replays(tmp_path: Path) -> None:
    with (
        ReplayCheckpoint(tmp_path, "a").held(),
        pytest.raises(InUse, match="another process"),
        ReplayCheckpoint(tmp_path, "a").held(),
    ):
        pass


def test_a_checkpoint_of_another_replay_or_none_is_refused(tmp_path: Path) -> None:
    checkpoint = ReplayCheckpoint(tmp_path, "a to b")
    with checkpoint.held() as first:
        checkpoint.note(first)
    with (
        pytest.raises(CheckpointUnusable, match=r"another replay \(a to b\)"),
        ReplayCheckpoint(tmp_path, "c").held(),
    ):
        pass
    (tmp_path / "replay.json").write_bytes(b"{}")
    with pytest.raises(CheckpointUnusable, match="remove it"), checkpoint.held():
        pass
    (tmp_path / "file").touch()
    with (
        pytest.raises(CheckpointUnusable, match="file"),
        ReplayCheckpoint(tmp_path / "file" / "x", "a").held(),
    ):
        pass


def test_a_full_disk_is_an_error_with_the_path(tmp_path: Path) -> None:
    checkpoint = ReplayCheckpoint(tmp_path, "a")
    (tmp_path / "replay.json.unfinished").mkdir()
    with checkpoint.held() as first, pytest.raises(CheckpointUnusable, match=r"replay\.json: Is a"):
        checkpoint.note(first)


def test_what_goes_wrong_inside_is_not_taken_for_another_process(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), ReplayCheckpoint(tmp_path, "a").held():
        raise BlockingIOError


def recorded_value(
    value: bytes | None, key_text: str | None = None, reason: str | None = None
) -> Recorded:
    return Recorded(
        SourceLocation("a.ndjson", "line", 7), RecordedPlace("", 1), 0, key_text, value, reason
    )


def test_topics_of_json_take_envelopes_removals_too() -> None:
    messages = [recorded_value(b'{\n"a":"b"}'), recorded_value(None, '["a"]', "expired")]
    for kind in ("json", "series"):
        assert body_of(kind, messages) == (
            b'{"value":{ "a":"b"}}\n{"key":["a"],"reason":"expired"}\n'
        )
        assert media_type_of(kind) == "application/x-ndjson"
        assert messages_max_of(kind) == MESSAGES_PER_REQUEST


@pytest.mark.parametrize(
    ("kind", "value", "body", "media_type"),
    [
        ("text", b'"a\\n\\u00e9"', b"a\n\xc3\xa9", "text/plain"),
        ("text", b'""', b"", "text/plain"),
        ("binary", b'"AAH/"', b"\x00\x01\xff", "application/octet-stream"),
    ],
)
def test_texts_and_bytes_go_as_they_are_one_by_one(
    kind: str, value: bytes, body: bytes, media_type: str
) -> None:
    assert body_of(kind, [recorded_value(value)]) == body
    assert (media_type_of(kind), messages_max_of(kind)) == (media_type, 1)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("text", b'{"a":1}', "a.ndjson, line 7: a topic of type text takes strings"),
        ("binary", b"7", "a.ndjson, line 7: a topic of type binary takes strings"),
        ("binary", b'"no base64"', "a.ndjson, line 7: a topic of type binary takes base64"),
    ],
)
def test_a_bad_text_is_an_error_with_its_place(kind: str, value: bytes, said: str) -> None:
    with pytest.raises(HistoryInvalid, match=f"{said}, and this is none"):
        body_of(kind, [recorded_value(value)])
