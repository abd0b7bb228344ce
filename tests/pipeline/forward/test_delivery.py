"""What a target has, and how far it is, stays together."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from tests.pipeline.forward.forwarding import brief, definitions
from tests.pipeline.ingest.ingesting import eventually, journal
from tests.support.commands import serving_here
from tests.support.deadlines import HANGS_S
from tests.support.rules import rule
from tidegate.clients.gateway import Gateway
from tidegate.pipeline.errors import EndpointUnavailable
from tidegate.pipeline.forward.delivery import Forward
from tidegate.pipeline.forward.target import Patience, Refusal, Row
from tidegate.pipeline.operations.shutdown import Stop
from tidegate.pipeline.operations.supervisor import RunOptions
from tidegate.pipeline.operations.threads import run_threads

pytestmark = pytest.mark.system
FILE = """
[forward.a]
source = {topic = "t", options = "conflation=50ms"}
sink = {kind = "kafka", brokers = "h:1", topic = "k"}
"""


@dataclass
class Ledger:
    """A sink that keeps rows and position together; `failures` are starts that end before both."""

    failures: int
    rows: list[Any] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)
    resumed: list[str] = field(default_factory=list)
    kind: ClassVar[str] = "ledger"
    keeps_position: ClassVar[bool] = True
    knows_message_ids: ClassVar[bool] = False
    label: str = "ledger"

    def target(self, name: str, patience: Patience) -> LedgerTarget:
        return LedgerTarget(self)


class LedgerTarget:
    """One start of it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rows: list[Any] = []
        self._identity = ""

    def open(self) -> None:
        pass

    def resume(self, identity: str) -> str:
        self._identity = identity
        after = self._ledger.positions.get(identity, "")
        self._ledger.resumed.append(after)
        return after

    def write(self, rows: Sequence[Row]) -> list[Refusal]:
        refused = [row for row in rows if brief_of(row)[1] == {"k": 13}]
        self._rows += [brief_of(row) for row in rows if row not in refused]
        return [Refusal(row, "unlucky") for row in refused]

    def note(self, after: str) -> None:
        ledger = self._ledger
        if ledger.failures:
            ledger.failures -= 1
            raise EndpointUnavailable("away")
        ledger.rows += self._rows
        ledger.positions[self._identity] = after
        self._rows = []

    def close(self) -> None:
        pass


def brief_of(row: Row) -> Any:
    return brief({name: msgspec.json.decode(text) for name, text in row.fields.items()})


@rule("forward-5")
def test_rows_and_their_position_are_stored_in_one_step(tmp_path: Path) -> None:
    ledger, stop = Ledger(failures=1), Stop()
    with serving_here() as address, Gateway(address) as gateway, ThreadPoolExecutor(1) as threads:
        gateway.put_topic("t", {"key": ["/k"]})
        gateway.publish("t", [{"k": 1}, {"k": 13}])
        [read] = definitions(tmp_path, FILE, address)
        forwards = [Forward(replace(read, sink=ledger), print)]
        running = threads.submit(run_threads, forwards, RunOptions(), stop, print)
        try:
            wanted = [("reset", None), ("snapshot", {"k": 1})]
            eventually(lambda: ledger.rows, wanted)
            gateway.publish("t", {"k": 2})
            eventually(lambda: ledger.rows, [*wanted, ("publish", {"k": 2})])
        finally:
            stop.ask()
            running.result(HANGS_S)
        # The rows of the first start were written again, and its refusal before the position moved.
        assert ledger.resumed == ["", ""]
        letters = journal(address, "t.undelivered")
        assert {each["reason"] for each in letters} == {"unlucky"}
    assert not list(tmp_path.glob("*.position*"))


def has_position(ledger: Ledger, identity: str) -> bool:
    return bool(ledger.positions.get(identity))


@rule("forward-2")
def test_with_other_fields_all_records_are_sent_again(tmp_path: Path) -> None:
    ledger = Ledger(failures=0)
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("t", {"key": ["/k"]})
        gateway.publish("t", {"k": 1, "n": 2})
        for options in ("select=[-/,+/k]", "conflation=1s,select=[-/,+/k]", "select=[-/,+/n]"):
            [read] = definitions(tmp_path, FILE.replace("conflation=50ms", options), address)
            stop, forward = Stop(), Forward(replace(read, sink=ledger), print)
            with ThreadPoolExecutor(1) as threads:
                running = threads.submit(run_threads, [forward], RunOptions(), stop, print)
                eventually(partial(has_position, ledger, forward.definition.identity), True)
                stop.ask()
                running.result(HANGS_S)
    assert ledger.rows == [
        ("reset", None),
        ("snapshot", {"k": 1}),
        ("reset", None),
        ("snapshot", {"n": 2}),
    ]


@dataclass
class Recognizer:
    """A sink that knows message ids; its first write is followed by a newer value and a failure."""

    gateway: Gateway
    written: list[list[tuple[str, Any]]] = field(default_factory=list)
    kind: ClassVar[str] = "recognizer"
    keeps_position: ClassVar[bool] = False
    knows_message_ids: ClassVar[bool] = True
    label: str = "recognizer"

    def target(self, name: str, patience: Patience) -> RecognizerTarget:
        return RecognizerTarget(self)


class RecognizerTarget:
    """One start of it."""

    def __init__(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer

    def open(self) -> None:
        pass

    def write(self, rows: Sequence[Row]) -> list[Refusal]:
        recognizer = self._recognizer
        recognizer.written.append([(row.message_id, brief_of(row)) for row in rows])
        if len(recognizer.written) == 1:
            recognizer.gateway.publish("t", {"k": 1, "n": 2})
            raise EndpointUnavailable("away")
        return []

    def close(self) -> None:
        pass


@rule("forward-6")
def test_a_batch_is_written_again_as_it_was_with_the_same_ids(tmp_path: Path) -> None:
    stop, position = Stop(), tmp_path / "position"
    with serving_here() as address, Gateway(address) as gateway, ThreadPoolExecutor(1) as threads:
        gateway.put_topic("t", {"key": ["/k"]})
        gateway.publish("t", {"k": 1, "n": 1})
        [read] = definitions(tmp_path, FILE, address)
        recognizer = Recognizer(gateway)
        forwards = [Forward(replace(read, sink=recognizer, position=position), print)]
        running = threads.submit(run_threads, forwards, RunOptions(), stop, print)
        try:
            eventually(lambda: {"k": 1, "n": 2} in map(newest, recognizer.written), True)
        finally:
            stop.ask()
            running.result(HANGS_S)
    first, again, *_ = recognizer.written
    assert first == again
    assert newest(first) != {"k": 1, "n": 2}
    ids = [message_id for batch in recognizer.written[1:] for message_id, _ in batch]
    assert len(ids) == len({*ids})
    assert all(ids)
    assert b"rows" not in position.read_bytes()


def newest(batch: list[tuple[str, Any]]) -> Any:
    """The value of the last row of a batch."""
    return batch[-1][1][1]
