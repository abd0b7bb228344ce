"""An administrator's requests against a real gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.clients.support.streams import plain, scripted
from tests.support.commands import serving_here
from tidegate.clients.administration import Administration
from tidegate.clients.aio.gateway import AsyncGateway
from tidegate.clients.errors import AnswerInvalid, GatewayProblem
from tidegate.clients.gateway import Gateway


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with serving_here() as address, Gateway(address) as gateway:
        yield gateway


@pytest.fixture
def administration(gateway: Gateway) -> Iterator[Administration]:
    yield gateway.administration
    for topic in list(gateway.topics()):
        gateway.delete_topic(topic["topic"])


def code_of(problem: pytest.ExceptionInfo[GatewayProblem]) -> str:
    return problem.value.code


def test_a_definition_changes_from_tag_to_tag(administration: Administration) -> None:
    made = administration.put_topic("a", {"key": ["/id"]}, only_new=True)
    assert (made.is_new, made.document["key"]) == (True, ["/id"])
    patched = administration.patch_topic("a", {"priority": "high"}, if_match=made.etag)
    assert (patched.is_new, patched.document["priority"]) == (False, "high")
    assert administration.topic("a").etag == patched.etag != made.etag
    stale: list[Callable[[], object]] = [
        lambda: administration.put_topic("a", {}, only_new=True),
        lambda: administration.put_topic("a", {}, if_match=made.etag),
        lambda: administration.patch_topic("a", {}, if_match=made.etag),
        lambda: administration.delete_topic("a", if_match=made.etag),
    ]
    for refused in stale:
        with pytest.raises(GatewayProblem) as raised:
            refused()
        assert code_of(raised) == "precondition-failed"
    administration.delete_topic("a", if_match=patched.etag)
    with pytest.raises(GatewayProblem) as raised:
        administration.topic("a")
    assert code_of(raised) == "topic-unknown"


def test_sessions_are_seen_tuned_and_closed(gateway: Gateway) -> None:
    administration = gateway.administration
    session = gateway.open_session()
    other = gateway.open_session()
    assert {each["session"] for each in administration.sessions()} == {session.id, other.id}
    assert administration.session(session.id)["conflated"] is True
    tuned = administration.tune_session(session.id, conflated=False, limits={"messages": 5})
    assert (tuned["conflated"], tuned["limits"]["messages"]) == (False, 5)
    for each in (session, other):
        administration.close_session(each.id)
    assert list(administration.sessions()) == []
    with pytest.raises(GatewayProblem) as raised:
        administration.session("none")
    assert code_of(raised) == "session-unknown"


def test_more_sessions_than_a_page(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.clients.requests.SESSIONS_PER_PAGE", 2)
    opened = [gateway.open_session() for _ in range(5)]
    listed = [each["session"] for each in gateway.administration.sessions()]
    assert listed == sorted(session.id for session in opened)
    for session in opened:
        gateway.administration.close_session(session.id)


def test_what_answers_a_deletion_otherwise_is_no_gateway() -> None:
    with (
        scripted(plain(200, b"<html>", "text/html")) as place,
        Gateway(place.address) as gateway,
        pytest.raises(AnswerInvalid),
    ):
        gateway.administration.delete_topic("t")


async def test_for_an_event_loop_it_is_the_same(gateway: Gateway) -> None:
    async with AsyncGateway(gateway.base_url) as client:
        administration = client.administration
        made = await administration.put_topic("a", {"key": ["/id"]}, only_new=True)
        patched = await administration.patch_topic("a", {"priority": "high"}, if_match=made.etag)
        assert (await administration.topic("a")).etag == patched.etag != made.etag
        with pytest.raises(GatewayProblem) as stale:
            await administration.delete_topic("a", if_match=made.etag)
        assert code_of(stale) == "precondition-failed"
        await administration.delete_topic("a")
        session = await client.open_session()
        tuned = await administration.tune_session(session.id, conflated=False)
        assert tuned["conflated"] is False
        assert [each["session"] async for each in administration.sessions()] == [session.id]
        await administration.close_session(session.id)
        assert (await administration.session(session.id))["state"] == "ended"
