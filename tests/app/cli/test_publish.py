"""Files reach a real gateway in requests of the right size, at the right time."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.commands import call, command, environment
from tests.support.deadlines import HANGS_S, LOOPS_S
from tests.support.network.fault_proxy import fault_proxy
from tests.support.outside import require_ticks
from tidegate.app.cli.publish import LINES_PER_REQUEST, TICK_S, Line, batches, parse_rate
from tidegate.app.cli.terminal import UsageInvalid
from tidegate.clients.gateway import Gateway

SUMMARY = re.compile(
    r"Published ([\d,]+) messages? to (\S+) in [\d.]+ s \([\d,]+ a second\), "
    r"last bookmark (\S+)\n"
)


def test_a_file_is_published_in_order_and_counted(gateway: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "many.ndjson"
    file.write_bytes(b"".join(b'{"n":%d}\n' % number for number in range(2500)))
    ended = call("publish", "many", str(file), "--gateway", gateway.base_url)
    assert ended.code == 0
    assert ended.err.startswith("Topic many did not exist and was created without a key")
    assert ended.err.count("\n") == 1
    found = SUMMARY.fullmatch(ended.out)
    assert found
    assert found.group(1, 2) == ("2,500", "many")
    envelopes = [json.loads(line) for line in gateway.messages("many", limit=5000)]
    assert [envelope["value"]["n"] for envelope in envelopes] == list(range(2500))
    assert found[3] == envelopes[-1]["bookmark"]


def test_a_topic_is_made_with_the_key_that_is_named(gateway: Gateway) -> None:
    def publish(*words: str) -> tuple[int, str]:
        line = b'{"a":1,"b":2}\n'
        ended = call("publish", "made", *words, "--gateway", gateway.base_url, stdin=line)
        return ended.code, ended.err

    keyed = ("--key", "/a,/b")
    created = "Topic made did not exist and was created with the key /a, /b.\n"
    assert publish(*keyed) == (0, created)
    assert gateway.topic("made")["key"] == ["/a", "/b"]
    assert publish(*keyed) == publish() == (0, "")
    code, said = publish("--key", "/b")
    assert code == 1
    assert "has the key /a, /b, and --key says /b" in said
    assert "tidegate topics delete made" in said
    assert gateway.topic("made")["journal"]["messages"] == 3


def test_the_refusal_of_another_key_names_the_topic_and_the_way(gateway: Gateway) -> None:
    gateway.publish("prices", {"symbol": "IBM"})
    words = ("topics", "create", "prices", "--key", "/symbol")
    ended = call(*words, "--gateway", gateway.base_url)
    assert ended.code == 1
    assert "[topic-conflict, topic prices, field /key]" in ended.err
    assert "holds messages" in ended.err
    assert ended.err.endswith("The command is: tidegate topics delete prices\n")


@pytest.mark.nightly  # the recording is not in the repository
def test_recorded_ticks_end_at_one_record_a_key(gateway: Gateway) -> None:
    file = str(require_ticks())
    gateway.put_topic("ticks", {"key": ["/tickerId", "/exchange", "/type"]})
    ended = call("publish", "ticks", file, "--gateway", gateway.base_url)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("Published 48,262 messages to ticks in ")
    assert len(list(gateway.sow("ticks"))) == 74


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_standard_input(gateway: Gateway, arguments: tuple[str, ...]) -> None:
    ended = call("publish", "t", *arguments, "--gateway", gateway.base_url, stdin=b"1\n\n2\n3")
    assert ended.code == 0
    assert ended.out.startswith("Published 3 messages to t in ")


@pytest.mark.system
def test_what_arrives_on_standard_input_is_published_at_once(gateway: Gateway) -> None:
    gateway.put_topic("t", {})
    process = subprocess.Popen(
        command("publish", "t", "--gateway", gateway.base_url),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    process.stdin.write(b"1\n")
    process.stdin.flush()
    give_up_at = time.monotonic() + LOOPS_S
    while gateway.topic("t")["messages_in"] < 1:
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    process.communicate(timeout=HANGS_S)
    assert process.returncode == 0


def test_a_bad_line_is_named_by_its_number_in_the_file_after_a_summary(
    gateway: Gateway, tmp_path: Path
) -> None:
    file = tmp_path / "bad.ndjson"
    file.write_bytes(b"\n" + b"1\n" * 1500 + b"{\n" + b"2\n")
    ended = call("publish", "t", str(file), "--gateway", gateway.base_url)
    assert (ended.code, ended.out) == (1, "")
    _, said, why = ended.err.splitlines()
    assert said.startswith("Published 1,000 messages to t in ")
    assert "[message-invalid, topic t, line 1502" in why
    assert gateway.topic("t")["messages_in"] == 1000


def test_a_paced_file_takes_its_time(gateway: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "paced.ndjson"
    file.write_bytes(b"".join(b'{"ts":%d}\n' % (number * 100) for number in range(11)))
    started_at = time.monotonic()
    arguments = ("--rate", "2x", "--time-field", "/ts", "--gateway", gateway.base_url)
    ended = call("publish", "t", str(file), *arguments)
    assert ended.code == 0
    assert time.monotonic() - started_at >= 0.5 - TICK_S  # a time is rounded down to a tick
    assert gateway.topic("t")["messages_in"] == 11


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("none.ndjson", None, 2),
        ("bad.gz", b"no", 2),
        ("bad.csv", b"a,a\n", 2),
        ("empty.ndjson", b"", 0),
        ("empty.csv", b"", 0),
    ],
)
def test_bad_files_and_empty_ones(
    gateway: Gateway, tmp_path: Path, name: str, content: bytes | None, code: int
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    ended = call("publish", "t", str(file), "--gateway", gateway.base_url)
    assert ended.code == code
    if code:
        assert ended.err.startswith("tidegate: ")
        assert ended.err.count("\n") == 1
    else:
        assert ended.out.startswith("Published 0 messages to t in ")


async def test_a_line_that_breaks_doubles_nothing_and_loses_nothing(
    gateway: Gateway, tmp_path: Path
) -> None:
    file = tmp_path / "many.ndjson"
    file.write_bytes(b"".join(b"%d\n" % number for number in range(4_500)))
    gateway.put_topic("log", {"type": "series"})
    async with fault_proxy("127.0.0.1", urlsplit(gateway.base_url).port or 0) as proxy:
        proxy.drop_reply(3)
        address = f"http://127.0.0.1:{proxy.port}"
        ended = await asyncio.to_thread(call, "publish", "log", str(file), "--gateway", address)
        assert proxy.lost_replies == 1
    assert ended.code == 0
    assert ended.err.startswith("tidegate: Cannot reach the gateway at ")
    assert ended.err.endswith("; trying again\n")
    envelopes = [json.loads(line) for line in gateway.messages("log", limit=10_000)]
    assert [envelope["value"] for envelope in envelopes] == list(range(4_500))
    found = SUMMARY.fullmatch(ended.out)
    assert found
    assert found.group(1, 3) == ("4,500", envelopes[-1]["bookmark"])


def lines(count: int, text: bytes = b"{}") -> Iterator[Line]:
    return (Line(number, text) for number in range(1, count + 1))


def due(rate: str, time_field: str | None, *texts: bytes) -> list[float]:
    schedule = parse_rate(rate, time_field)
    assert schedule is not None
    return [schedule(Line(number, text)) for number, text in enumerate(texts, start=1)]


def test_requests_have_a_thousand_lines() -> None:
    sizes = [len(batch) for batch in batches(lines(2 * LINES_PER_REQUEST + 5))]
    assert sizes == [1000, 1000, 5]


def test_large_lines_share_a_request_that_proxies_take() -> None:
    assert [len(batch) for batch in batches(lines(5, b"x" * 300_000))] == [2, 2, 1]
    assert [len(batch) for batch in batches(lines(2, b"x" * 2_000_000))] == [1, 1]


def test_what_has_arrived_does_not_wait_for_more() -> None:
    arriving = [Line(1, b"1"), None, None, Line(2, b"2"), Line(3, b"3"), None]
    assert [[line.number for line in batch] for batch in batches(iter(arriving))] == [[1], [2, 3]]


def test_nothing_is_no_request() -> None:
    assert list(batches(iter([None, None]))) == []


def test_a_steady_rate() -> None:
    assert due("4", None, b"1", b"2", b"3") == [0.0, 0.25, 0.5]


def test_a_recorded_speed_in_milliseconds_and_in_iso_times() -> None:
    assert due("2x", "/ts", b'{"ts":1000}', b'{"ts":2000.0}', b'{"ts":1500}', b'{"ts":3000}') == [
        0.0,
        0.5,
        0.5,
        1.0,
    ]
    moments = [b'{"a":{"t":"2013-10-08T13:30:0%dZ"}}' % second for second in (0, 4)]
    assert due("0.5X", "$.a.t", *moments) == [0.0, 8.0]


@pytest.mark.parametrize("text", [b"{}", b'{"ts":null}', b'{"ts":"soon"}', b'{"ts":true}', b"["])
def test_a_message_without_time_is_named(text: bytes) -> None:
    with pytest.raises(UsageInvalid, match="line 1 has no time in /ts"):
        due("1x", "/ts", text)


@pytest.mark.parametrize(
    ("rate", "time_field"),
    [
        *(("fast", None), ("0", None), ("-5", None), ("2y", None), ("", None), ("1e3", None)),
        *(("0x", "/ts"), ("2x", None), ("5", "/ts"), (None, "/ts"), ("2x", "ts")),
    ],
)
def test_a_rate_that_makes_no_sense(rate: str | None, time_field: str | None) -> None:
    with pytest.raises(UsageInvalid):
        parse_rate(rate, time_field)


def test_paced_messages_take_their_time_and_share_requests() -> None:
    started_at = time.monotonic()
    sizes = [len(batch) for batch in batches(lines(100), parse_rate("200", None))]
    assert time.monotonic() - started_at >= 0.4
    assert sum(sizes) == 100
    assert len(sizes) <= 30


def test_records_are_deleted_by_key_or_filter(gateway: Gateway) -> None:
    def deleted(*arguments: str) -> tuple[int, str]:
        ended = call("delete", *arguments, "--gateway", gateway.base_url)
        assert "Traceback" not in ended.err
        return ended.code, ended.out or ended.err

    gateway.put_topic("one", {"key": ["/k"]})
    gateway.publish("one", [b'{"k":"A"}', b'{"k":7}', b'{"k":"7"}', b'{"k":"B"}', b'{"k":"C"}'])
    assert deleted("one", "A", "7", "gone") == (0, "Deleted 2 records of one\n")
    assert sorted(gateway.sow("one")) == [b'{"k":"7"}', b'{"k":"B"}', b'{"k":"C"}']
    assert deleted("one", '"7"') == (0, "Deleted 1 record of one\n")
    assert deleted("one", "--filter", "/k >= 'B'") == (0, "Deleted 2 records of one\n")
    gateway.put_topic("two", {"key": ["/k", "/n"]})
    gateway.publish("two", [b'{"k":"A","n":1}', b'{"k":"A","n":2}'])
    assert deleted("two", '["A",1]') == (0, "Deleted 1 record of two\n")
    assert list(gateway.sow("two")) == [b'{"k":"A","n":2}']
    for wrong in ((), ("A", "--filter", "true")):
        code, said = deleted("two", *wrong)
        assert (code, "name the keys of records, or a --filter" in said) == (2, True)
    assert deleted("two", "A")[0] == 1  # a key of two fields
    assert deleted("two", "null")[0] == 1
    assert deleted("two", "{}")[0] == 1
