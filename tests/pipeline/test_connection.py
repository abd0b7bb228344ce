from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.pipeline.journals import Journals, Removed
from tidegate.clients import errors as clients_errors
from tidegate.clients.answers import Journal
from tidegate.clients.errors import AnswerInvalid, GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.clients.retry import Retry, is_temporary
from tidegate.pipeline.connection import gateway_at, pipeline_error, reported_retry
from tidegate.pipeline.errors import (
    GatewayRefused,
    GatewayUnreachable,
    RunFenced,
    UsageInvalid,
)
from tidegate.pipeline.operations.shutdown import Stop, Stopped

QUICK = Retry(60.0, pause=lambda seconds: None, clock=lambda: 0.0)


@pytest.fixture
def gateway(journals: Journals) -> Iterator[Gateway]:
    with Gateway(journals.address, every=QUICK) as opened:
        yield opened


def test_a_repeated_number_is_recognised_and_publishes_nothing(
    journals: Journals, gateway: Gateway
) -> None:
    topic = journals.topic("t")
    gateway.stage("t", [b"1\n2\n"], "a", "p")
    gateway.stage("t", [b"0\n"], "b", "p")
    assert topic.values == []
    assert not gateway.commit("t", "p", 1, 7, ["b", "a"]).duplicate
    assert gateway.commit("t", "p", 1, 7, ["b", "a"]).duplicate
    assert topic.values == [b"0", b"1", b"2"]


def test_a_number_can_be_asked_for_and_nothing_comes_of_it(
    journals: Journals, gateway: Gateway
) -> None:
    topic = journals.topic("t")
    assert gateway.highest_sequence("t", "p", 1) is None
    gateway.stage("t", [b"1\n"], "a", "p")
    gateway.commit("t", "p", 1, 7, ["a"])
    assert gateway.highest_sequence("t", "p", 2) == 7
    assert topic.values == [b"1"]
    gateway.stage("t", [b"2\n"], "b", "p")
    gateway.commit("t", "p", 3, 8, ["b"])
    with pytest.raises(GatewayProblem, match="producer-fenced"):
        gateway.highest_sequence("t", "p", 2)


def test_a_stage_of_envelopes_has_removals(journals: Journals, gateway: Gateway) -> None:
    topic = journals.topic("t")
    lines = b'{"value":1}\n{"key":["a"],"reason":"deleted"}\n'
    gateway.stage("t", [lines], "a", "p", enveloped=True)
    assert not gateway.commit("t", "p", 1, 7, ["a"]).duplicate
    assert topic.values == [b"1", b'["a"]']
    assert isinstance(topic.values[1], Removed)


@pytest.mark.parametrize(
    "address",
    ["ftp://x", "redis://:word@x", "x:8080", "http://", "http:///p", "http://[::1", "http://a/v1"],
)
def test_a_malformed_address_is_refused_without_a_try(address: str) -> None:
    with pytest.raises(UsageInvalid, match=r"^the address of a gateway is such as http://[^@]*$"):
        gateway_at(address).__enter__()


def test_records_come_in_pieces_of_whole_lines(
    journals: Journals, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: one that begins with all of a topic does not hold them at once."""
    monkeypatch.setattr("tidegate.clients.gateway.PIECE_BYTES", 100)
    topic = journals.topic("t")
    topic.records = {b'["%d"]' % at: (at, b'"%s"' % (b"x" * at)) for at in range(50)}
    pieces = list(gateway.records("t"))
    assert len(pieces) > 20
    assert all(piece.endswith(b"}\n") for piece in pieces)
    assert b"".join(pieces).count(b"\n") == 50
    topic.records = {}
    assert list(gateway.records("t")) == []


def test_each_refusal_is_an_error_of_the_pipeline_with_its_sentence() -> None:
    def kind_of(status: int, code: str) -> tuple[type[Exception], str]:
        found = pipeline_error(GatewayProblem(status, code, "No", "why"), "http://a/")
        return type(found), str(found)

    place = "the gateway at http://a"
    said = f"{place} refused: No [limit-reached]: why"
    assert kind_of(422, "limit-reached") == (GatewayRefused, said)
    assert kind_of(409, "producer-fenced")[0] is RunFenced
    assert kind_of(429, "x") == (GatewayRefused, f"{place} still refuses: No [x]: why")
    assert kind_of(503, "x") == (GatewayUnreachable, f"{place} is out of order: No [x]: why")
    nobody = pipeline_error(AnswerInvalid("/ did not answer as a Tidegate gateway does"), "")
    assert isinstance(nobody, GatewayRefused)


@pytest.mark.parametrize("status", [422, 429, 503])
def test_a_refusal_shows_no_password(status: int) -> None:
    found = pipeline_error(GatewayProblem(status, "x", "No"), "http://user:secret@a/")
    assert str(found).startswith("the gateway at http://a ")


def test_a_gateway_in_trouble_is_asked_again(journals: Journals, gateway: Gateway) -> None:
    topic = journals.topic("t")
    journals.refusals = [503, 429, 500]
    gateway.stage("t", [b"1\n"], "a", "p")
    journals.refusals = [502]
    assert not gateway.commit("t", "p", 1, 1, ["a"]).duplicate
    assert topic.values == [b"1"]
    assert journals.refusals == []


def test_a_refusal_is_not_repeated_and_says_why(journals: Journals, gateway: Gateway) -> None:
    journals.refusals = [422, 422]
    journals.topic("t")
    with pytest.raises(GatewayProblem, match=r"No \[made-up, topic t\]"):
        gateway.stage("t", [b"1\n"], "a", "p")
    assert journals.refusals == [422]


def test_an_older_run_is_refused(journals: Journals, gateway: Gateway) -> None:
    topic = journals.topic("t")
    for name in ("a", "b"):
        gateway.stage("t", [b"1\n"], name, "p")
    assert not gateway.commit("t", "p", 2, 1, ["a"]).duplicate
    with pytest.raises(GatewayProblem, match="producer-fenced"):
        gateway.commit("t", "p", 1, 2, ["b"])
    assert topic.values == [b"1"]


@pytest.mark.parametrize(("status", "kind"), [(503, GatewayUnreachable), (429, GatewayRefused)])
def test_an_outage_that_lasts_is_an_error_of_its_kind(
    journals: Journals, status: int, kind: type[Exception]
) -> None:
    journals.refusals = [status] * 50
    journals.topic("t")
    with pytest.raises(kind, match="made-up"), gateway_at(journals.address, Retry(0.2)) as gateway:
        gateway.stage("t", [b"1\n"], "a", "p")


def test_patience_ends() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(GatewayUnreachable, match="cannot reach the gateway at http://127"),
            gateway_at(address, Retry(0.3)) as gateway,
        ):
            gateway.topic("t")


def test_a_missing_topic_is_none_and_has_no_journal(gateway: Gateway) -> None:
    assert gateway.find_topic("none") is None
    with pytest.raises(GatewayProblem, match="topic-unknown"):
        gateway.journal("none")


def test_a_trimmed_journal_is_a_loss(journals: Journals, gateway: Gateway) -> None:
    journals.topic("t", [b"1", b"2"]).trimmed = 1
    with pytest.raises(GatewayProblem, match="bookmark-expired"):
        gateway.journal_page("t", "e1-0", 10)


def test_the_journals_ends_are_bookmarks(journals: Journals, gateway: Gateway) -> None:
    journals.topic("t")
    assert gateway.journal("t") == Journal("e1", None, None)
    journals.topic("t", [b"1", b"2", b"3"]).trimmed = 1
    assert gateway.journal("t") == Journal("e1", "e1-2", "e1-3")


def test_an_outage_is_reported_when_it_begins() -> None:
    stop, reports = Stop(), list[str]()
    retry = reported_retry("http://a", reports.append, stop.pause)
    calls = 0

    def ask() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise clients_errors.GatewayUnreachable("Cannot reach it: nobody is there")
        return "here"

    for outage in (1, 2):
        calls = 0
        assert retry.call(ask, is_temporary) == "here"
        assert reports == ["cannot reach it: nobody is there; trying again for 60 s"] * outage


def test_a_signal_ends_the_wait_for_a_gateway() -> None:
    stop, reports = Stop(), list[str]()

    def ask() -> None:
        stop.ask()
        raise clients_errors.GatewayUnreachable("nobody is there")

    with pytest.raises(Stopped):
        reported_retry("http://a", reports.append, stop.pause).call(ask, is_temporary)
    assert len(reports) == 1
