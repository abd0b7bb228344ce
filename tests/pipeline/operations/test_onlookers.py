"""Who is told how streams stand."""

from __future__ import annotations

import socket
from urllib.request import urlopen

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.ports import lasting_port
from tidegate.pipeline.errors import UsageInvalid
from tidegate.pipeline.operations import reporter
from tidegate.pipeline.operations.reporter import Reporter
from tidegate.pipeline.operations.run_options import ONWARD, RunOptions
from tidegate.pipeline.operations.status import State, StreamStatus, progress_line
from tidegate.pipeline.operations.watch import onlookers

NOW = [StreamStatus("a", State.RUNNING), StreamStatus("b", State.FAILED)]


def test_the_terminal_each_gateway_and_prometheus_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    told: list[tuple[str, str]] = []

    class Kept(Reporter):
        def run(self) -> None:
            pass

        def tell(self, conditions: object) -> None:
            assert conditions == NOW
            told.append((self._gateway.base_url, "told"))

    monkeypatch.setattr(reporter, "Reporter", Kept)
    port = lasting_port()
    manner = RunOptions(metrics_port=port)
    with onlookers(manner, {"http://b", "http://a"}, lambda now: now.name, said.append) as found:
        for each in found:
            each.look(NOW)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANGS_S) as answer:
            text = answer.read().decode()
    assert said == ["a", "b"]
    assert told == [("http://a", "told"), ("http://b", "told")]
    assert 'tidegate_pipeline_failed{query="b"} 1.0' in text


def test_without_a_port_and_a_gateway_the_terminal_alone_is_told() -> None:
    with onlookers(ONWARD, [], progress_line, lambda _: None) as found:
        assert len(found) == 1


def test_a_port_that_is_taken_is_told_before_anything_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        manner = RunOptions(metrics_port=taken.getsockname()[1])
        with (
            pytest.raises(UsageInvalid, match="no metrics on"),
            onlookers(manner, [], progress_line, lambda _: None),
        ):
            pass


def test_what_is_no_address_of_a_gateway_is_told_before_anything_else() -> None:
    with (
        pytest.raises(UsageInvalid, match="the address of a gateway is such as"),
        onlookers(ONWARD, ["ftp://x"], progress_line, lambda _: None),
    ):
        pass
