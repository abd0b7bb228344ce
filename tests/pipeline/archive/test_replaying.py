"""What a replay sends, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tidegate.clients.answers import Published
from tidegate.clients.errors import GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.archive.recorded import Recorded, RecordedPlace, Spot
from tidegate.pipeline.archive.replaying import Mark, Replaying, Totals
from tidegate.pipeline.errors import GatewayRefused, RunFenced


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
    mark = Mark(tmp_path, "a to b")
    with mark.held() as noted:
        yield lambda gateway: Replaying(cast("Gateway", gateway), "t", mark, noted)


def message(number: int, value: bytes | None = b"1") -> Recorded:
    spot, reason = Spot("a.ndjson", "line", number * 10), None if value else "deleted"
    return Recorded(spot, RecordedPlace("", number), 5, '["a"]', value, reason)


def refusal(line: int | None, code: str = "message-invalid") -> GatewayProblem:
    return GatewayProblem(400, code, "Bad", line=line)


SAID = r"the gateway at http://a said no: Bad \["


def test_what_was_sent_is_counted(begin: Begin) -> None:
    gateway = Taking({"type": "json", "key": []})
    replaying = begin(gateway)
    replaying.send([message(1), message(2, None), message(3)])
    assert replaying.totals == Totals(2, 0, 1, 5)
    gateway.is_new = False
    replaying.send([message(4)])
    assert replaying.line() == (
        "t: 3 messages published, 1 of them by an earlier run, 1 removals passed over: the topic "
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
def test_the_line_of_a_request_is_told_as_that_of_the_file(
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
