"""A subscription that outlives its connection."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.clients.support.streams import Script, broken_stream, plain, scripted, stream
from tests.support.deadlines import HANGS_S
from tests.support.rules import rule
from tidegate.clients.errors import AnswerInvalid, GatewayProblem, GatewayUnreachable
from tidegate.clients.gateway import Gateway
from tidegate.clients.retry import Backoff
from tidegate.clients.sse import Event
from tidegate.clients.stream import Places, Stream
from tidegate.clients.subscription import Subscription

HELLO = b'event: hello\ndata: {"session":"s","heartbeat_ms":20000}\n\n'
SILENCE_S = 50  # 2.5 heartbeats, after which it would connect again
GOODBYE = b'event: goodbye\nretry: 1\ndata: {"reason":"UNSUBSCRIBED","reconnect":false}\n\n'
FORBIDDEN = b'{"title":"Not permitted","status":403,"code":"forbidden"}'
TOPIC_UNKNOWN = b'{"title":"There is no such topic","status":404,"code":"topic-unknown"}'
PROBLEM = (
    b'{"title":"Not valid options","status":400,"code":"options-invalid",'
    b'"detail":"No.","position":3}'
)


def row(number: int) -> bytes:
    return b"id: e-%d\ndata: %d\n\n" % (number, number)


def texts(subscription: Subscription) -> list[str]:
    return [event.text for event in subscription if event.name == "message"]


def refused(status: int, **headers: str) -> Script:
    return plain(status, PROBLEM, "application/problem+json", **headers)


class Clock:
    """Monotonic seconds that stand, or go on from when they are let go."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._went_at_s: float | None = None

    def go(self) -> None:
        self._went_at_s = time.monotonic()

    def monotonic(self) -> float:
        went_s = 0.0 if self._went_at_s is None else time.monotonic() - self._went_at_s
        return self.now_s + went_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What a subscription's time goes by."""
    made = Clock()
    monkeypatch.setattr("tidegate.clients.subscription.time", made)
    return made


def test_events_come_in_order_and_goodbye_ends_it() -> None:
    with (
        scripted(stream(HELLO, row(1), row(2) + GOODBYE)) as fake,
        Gateway(fake.address) as gateway,
    ):
        subscription = gateway.subscribe("t", options="conflation=1s", format="value")
        assert [event.name for event in subscription] == ["hello", "message", "message", "goodbye"]
        assert fake.requests == [(None, {"options": "conflation=1s", "format": "value"})]


@pytest.mark.parametrize("end", [stream, broken_stream])
def test_a_lost_connection_is_resumed_after_the_last_event(end: type) -> None:
    lost: list[str] = []
    scripts = (end(HELLO, row(1), row(2)), stream(HELLO, row(3), GOODBYE))
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway:
        assert texts(gateway.subscribe("t", trouble=lost.append)) == ["1", "2", "3"]
        assert [after for after, _ in fake.requests] == [None, "e-2"]
    assert len(lost) == 1


def test_no_content_ends_it() -> None:
    with scripted(stream(HELLO, row(1)), plain(204)) as fake, Gateway(fake.address) as gateway:
        assert texts(gateway.subscribe("t")) == ["1"]
        assert len(fake.requests) == 2


def test_a_session_that_is_gone_is_replaced_by_another() -> None:
    """A pattern's ids are its session's, which a gateway that was started anew does not know."""
    gone = b'{"title":"There is no such session","status":404,"code":"session-unknown"}'
    scripts = (
        stream(HELLO, row(1)),
        plain(404, gone, "application/problem+json"),
        stream(HELLO, row(2), GOODBYE),
    )
    lost: list[str] = []
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway:
        assert texts(gateway.subscribe("t.*", trouble=lost.append)) == ["1", "2"]
        assert [after for after, _ in fake.requests] == [None, "e-1", None]
    assert lost


@rule("session-11")
def test_who_has_places_in_a_patterns_topics_goes_on_from_them() -> None:
    """Also where several attempts are needed."""
    hello = (
        b'event: hello\nid: s-0\ndata: {"session":"s","heartbeat_ms":20000,"subscriptions":'
        b'[{"topic":"t.a","bookmark":"e1-4"},{"topic":"t.b","bookmark":"e2-1"}]}\n\n'
    )
    gone = b'{"title":"There is no such session","status":404,"code":"session-unknown"}'
    scripts = (
        stream(hello, b"id: s-1~e2-2\ndata: 1\n\n"),
        plain(404, gone, "application/problem+json"),
        refused(503),
        stream(HELLO, row(2), GOODBYE),
    )
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway:
        assert texts(gateway.subscribe("t.*", options="conflation=1s")) == ["1", "2"]
        assert [after for after, _ in fake.requests] == [None, "s-1~e2-2", None, None]
        sent = b'{"options":"conflation=1s","bookmarks":"t.a=e1-4,t.b=e2-2"}'
        assert [body.replace(b", ", b",").replace(b": ", b":") for body in fake.bodies] == [
            b"", b"", sent, sent
        ]  # fmt: skip


def test_a_finished_sow_is_not_asked_for_again() -> None:
    with scripted(stream(HELLO, row(1))) as fake, Gateway(fake.address) as gateway:
        assert texts(gateway.subscribe("t", command="sow")) == ["1"]
        assert len(fake.requests) == 1


def test_silence_beyond_two_and_a_half_heartbeats_is_a_lost_connection() -> None:
    hang = threading.Event()
    hello = b'event: hello\ndata: {"heartbeat_ms":40}\n\n'
    scripts = (stream(hello, row(1), then_hang=hang), stream(HELLO, row(2), GOODBYE))
    lost: list[str] = []
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway:
        assert texts(gateway.subscribe("t", trouble=lost.append)) == ["1", "2"]
        hang.set()
    assert "silent" in lost[0]


def test_a_refusal_is_raised_with_all_it_says() -> None:
    with (
        scripted(refused(400)) as fake,
        Gateway(fake.address) as gateway,
        pytest.raises(GatewayProblem) as raised,
    ):
        next(gateway.subscribe("t"))
    error = raised.value
    assert (error.status, error.code, error.title) == (400, "options-invalid", "Not valid options")
    assert (error.detail, error.position) == ("No.", 3)
    assert str(error) == "Not valid options [options-invalid, topic t, position 3]: No."


def test_a_first_503_is_raised_and_a_later_one_tried_again() -> None:
    scripts = (refused(503), stream(HELLO, row(1)), refused(503, retry_after="0"), plain(204))
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway:
        with pytest.raises(GatewayProblem, match="options-invalid"):
            next(gateway.subscribe("t"))
        assert texts(gateway.subscribe("t")) == ["1"]


def test_a_retry_after_counts_for_the_next_attempt_alone() -> None:
    followed = Stream(backoff=Backoff(chance=lambda low, high: 0.0), trouble=lambda sentence: None)
    out = GatewayProblem(503, "bus-unavailable", "Out", retry_after_s=120.0)
    followed.opened(200, {})
    assert len(list(followed.events(b"retry: 3000\n" + HELLO))) == 1
    followed.failed(out, 0.0)
    assert followed.wait_s() == 120.0
    followed.failed(GatewayUnreachable("nobody"), 0.0)
    assert followed.wait_s() == 3.0
    followed.failed(out, 0.0)
    followed.opened(200, {})
    followed.ended()
    assert followed.wait_s() == 3.0


def test_a_later_403_is_raised() -> None:
    denied = plain(403, FORBIDDEN, "application/problem+json")
    with scripted(stream(HELLO, row(1)), denied) as fake, Gateway(fake.address) as gateway:
        subscription = gateway.subscribe("t")
        with pytest.raises(GatewayProblem):
            texts(subscription)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, "text/plain"),
        (403, "text/html"),
        (401, ""),
        (200, "text/html"),
        (404, "application/json"),
        (403, "application/problem+json"),
    ],
)
def test_the_answer_of_another_server_is_an_outage(status: int, kind: str) -> None:
    """An ingress answers by itself while what is behind it is started again."""
    said = b'{"code":404}' if "json" in kind else b"<html>default backend - 404"
    other = plain(status, said, kind)
    lost: list[str] = []
    with scripted(stream(HELLO, row(1)), other, other, stream(HELLO, row(2), GOODBYE)) as fake:
        with Gateway(fake.address) as gateway:
            assert texts(gateway.subscribe("t", trouble=lost.append)) == ["1", "2"]
        assert len(fake.requests) == 4
    assert len(lost) == 2  # the end of the stream, and one kind of failure
    with (
        scripted(other) as fake,
        Gateway(fake.address) as gateway,
        pytest.raises((GatewayProblem, AnswerInvalid)),  # most likely a wrong address
    ):
        next(gateway.subscribe("t"))


def test_what_a_proxy_finds_too_large_stays_refused() -> None:
    other = plain(413, b"<html>", "text/html")
    with (
        scripted(stream(HELLO, row(1)), other) as fake,
        Gateway(fake.address) as gateway,
        pytest.raises(GatewayProblem, match="http-413"),
    ):
        texts(gateway.subscribe("t"))


def missing_topic() -> Script:
    return plain(404, TOPIC_UNKNOWN, "application/problem+json")


def test_a_topic_that_is_missing_for_a_while_is_waited_for() -> None:
    scripts = (stream(HELLO, row(1)), missing_topic(), missing_topic(), stream(HELLO, row(2)))
    lost: list[str] = []
    with scripted(*scripts, plain(204)) as fake, Gateway(fake.address) as gateway:
        subscription = gateway.subscribe("t", trouble=lost.append)
        assert texts(subscription) == ["1", "2"]
        assert subscription.standing_error is None
    missing = "There is no such topic [topic-unknown, topic t]"
    assert lost == ["the stream ended", missing, "the stream ended"]


def test_the_reason_of_a_goodbye_and_the_gateway_that_said_it_are_reported() -> None:
    goodbye = b'event: goodbye\nretry: 1\ndata: {"reason":"SHUTDOWN","reconnect":true}\n\n'
    scripts = (
        stream(HELLO, row(1), goodbye, gateway="g1"),
        stream(HELLO, row(2), gateway="g2"),
        stream(HELLO, row(3), goodbye),
    )
    reported: list[str] = []
    with scripted(*scripts, plain(204)) as fake, Gateway(fake.address) as gateway:
        subscription = gateway.subscribe("t", trouble=reported.append)
        served = [subscription.gateway_id for event in subscription if event.name == "hello"]
    assert served == ["g1", "g2", ""]
    assert reported == [
        "the stream of gateway g1 ended: SHUTDOWN",
        "the stream of gateway g2 ended",
        "the stream ended: SHUTDOWN",
    ]


def test_a_topic_that_is_made_again_without_its_key_is_waited_for() -> None:
    scripts = (stream(HELLO, row(1)), refused(400), refused(400), stream(HELLO, row(2)))
    lost: list[str] = []
    with scripted(*scripts, plain(204)) as fake, Gateway(fake.address) as gateway:
        assert texts(gateway.subscribe("t", trouble=lost.append)) == ["1", "2"]
    assert len(lost) == 3
    assert "options-invalid" in lost[1]


def test_a_topic_that_never_was_is_raised_at_once() -> None:
    with scripted(missing_topic()) as fake, Gateway(fake.address) as gateway:
        with pytest.raises(GatewayProblem, match="topic-unknown"):
            next(gateway.subscribe("t"))
        assert len(fake.requests) == 1


def test_an_outage_is_reported_once_and_lasts_to_the_end_of_the_time(clock: Clock) -> None:
    tried: list[str] = []
    lost: list[str] = []
    with scripted(stream(HELLO, row(1))) as fake, httpx2.Client(trust_env=False) as client:

        def connect(after: str) -> httpx2.Response:
            tried.append(after)
            if len(tried) > 4:
                clock.now_s += 60
            if len(tried) > 1:
                raise GatewayUnreachable(f"Cannot reach it, attempt {len(tried)}")
            return client.send(client.build_request("GET", fake.address), stream=True)

        quick = Backoff(first_s=0.05, most_s=0.05)
        stream_state = Stream(trouble=lost.append, backoff=quick)
        subscription = Subscription(connect, stream_state, for_s=60)
        assert texts(subscription) == ["1"]
    assert len(tried) == 5
    assert lost == ["the stream ended", "Cannot reach it, attempt 2"]
    assert isinstance(subscription.standing_error, GatewayUnreachable)


def test_an_unreachable_gateway_is_raised_at_once() -> None:
    with Gateway("http://127.0.0.1:1") as gateway, pytest.raises(GatewayUnreachable, match=":1"):
        next(gateway.subscribe("t"))


def test_another_content_type_is_refused() -> None:
    with (
        scripted(plain(200, b"<html>", "text/html")) as fake,
        Gateway(fake.address) as gateway,
        pytest.raises(AnswerInvalid, match="not text/event-stream"),
    ):
        next(gateway.subscribe("t"))


def test_it_ends_by_itself_after_the_time_given(clock: Clock) -> None:
    hang = threading.Event()
    with scripted(stream(HELLO, row(1), then_hang=hang)) as fake, Gateway(fake.address) as gateway:
        subscription = gateway.subscribe("t", for_s=0.5)
        assert [next(subscription).name for _ in range(2)] == ["hello", "message"]
        started_at = time.monotonic()
        clock.go()
        assert texts(subscription) == []
        assert 0.5 <= time.monotonic() - started_at < SILENCE_S
        hang.set()


def test_close_from_another_thread_ends_a_waiting_iteration() -> None:
    hang = threading.Event()
    with scripted(stream(HELLO, row(1), then_hang=hang)) as fake, Gateway(fake.address) as gateway:
        subscription = gateway.subscribe("t")
        assert next(subscription).name == "hello"
        assert next(subscription).text == "1"
        closer = threading.Timer(0.05, subscription.close)
        closer.start()
        assert texts(subscription) == []
        closer.join()
        hang.set()


def test_leaving_the_block_closes_the_connection() -> None:
    hang = threading.Event()
    with scripted(stream(HELLO, row(1), then_hang=hang)) as fake, Gateway(fake.address) as gateway:
        with gateway.subscribe("t") as subscription:
            next(subscription)
        assert "tidegate-body" not in [thread.name for thread in threading.enumerate()]
        hang.set()


def test_leaving_the_block_ends_the_iteration_of_another_thread() -> None:
    hang, came = threading.Event(), threading.Event()

    def read(subscription: Subscription) -> list[str]:
        names = []
        for each in subscription:
            names.append(each.name)
            if each.name == "message":
                came.set()
        return names

    with (
        scripted(stream(HELLO, row(1), then_hang=hang)) as fake,
        Gateway(fake.address) as gateway,
        ThreadPoolExecutor(1) as threads,
    ):
        with gateway.subscribe("t") as subscription:
            reading = threads.submit(read, subscription)
            assert came.wait(HANGS_S)
            time.sleep(0.05)  # it waits for the next event
        assert reading.result(HANGS_S) == ["hello", "message"]
        hang.set()


def test_it_resumes_after_the_given_event() -> None:
    with scripted(stream(HELLO, GOODBYE)) as fake, Gateway(fake.address) as gateway:
        list(gateway.subscribe("t", last_event_id="e-5"))
        assert fake.requests[0][0] == "e-5"


def test_the_place_is_that_of_the_event_in_hand_not_of_what_has_arrived() -> None:
    script = stream(HELLO + row(1) + row(2) + GOODBYE)
    with scripted(script) as fake, Gateway(fake.address) as gateway:
        subscription = gateway.subscribe("t")
        places = [(event.name, subscription.last_event_id) for event in subscription]
    assert places[:3] == [("hello", ""), ("message", "e-1"), ("message", "e-2")]


def event(name: str, document: object, id_text: str = "") -> Event:
    return Event(name, json.dumps(document), id_text)


def hello(*entries: tuple[str, str | None]) -> Event:
    named = [{"sub": "s1", "topic": topic, "bookmark": place} for topic, place in entries]
    return event("hello", {"session": "S", "subscriptions": named}, "S-0")


def test_another_hello_counts_alone() -> None:
    places = Places()
    places.apply(hello(("px.a", "e1-3"), ("px.b", "e2-1")))
    places.apply(hello(("px.b", "e2-4")))
    assert places.text == "px.b=e2-4"
    places.apply(Event("hello", "no JSON"))
    places.apply(event("hello", {"subscriptions": [{"sub": "s1", "topic": "px.a"}]}))
    assert places.text == ""


def notice(name: str, **fields: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(fields)}\n\n".encode()


LOST = notice("resumed", topic="t", mode="snapshot", gap_messages=7, not_found="now")
WHOLE = notice("resumed", topic="t", mode="replay", gap_messages=7, not_found=None)
EXPIRED = notice("unsubscribed", sub="s1", topic="t", reason="BOOKMARK_EXPIRED")
NO_ROOM = b"retry: 1\n" + notice(
    "refused", title="A limit is reached", status=429, code="limit-reached", detail="No room."
)


@rule("resume-10")
@pytest.mark.parametrize(
    ("resumed", "told"), [(WHOLE, []), (LOST, ["t: up to 7 messages are missing for good"])]
)
def test_messages_that_are_missing_are_reported(resumed: bytes, told: list[str]) -> None:
    said: list[str] = []
    with scripted(stream(HELLO, resumed, GOODBYE)) as fake, Gateway(fake.address) as gateway:
        list(gateway.subscribe("t", trouble=said.append))
    assert [sentence.partition(";")[0] for sentence in said] == told


@rule("resume-10")
def test_by_default_they_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with scripted(stream(HELLO, LOST, GOODBYE)) as fake, Gateway(fake.address) as gateway:
        list(gateway.subscribe("t"))
    [record] = [each for each in caplog.records if each.name == "tidegate.clients"]
    assert record.levelname == "WARNING"
    assert "are missing for good" in record.getMessage()


@rule("resume-10")
def test_the_end_of_what_must_be_found_is_an_error() -> None:
    with (
        scripted(stream(HELLO, row(1), EXPIRED, GOODBYE)) as fake,
        Gateway(fake.address) as gateway,
        pytest.raises(GatewayProblem, match=r"\[bookmark-expired, topic t\]"),
    ):
        list(gateway.subscribe("t", options="bookmark=epoch,bookmark_not_found=fail"))


@rule("resume-10")
def test_the_end_of_one_subscription_does_not_end_a_session() -> None:
    said: list[str] = []
    stream_of_session = Stream(is_session=True, trouble=said.append)
    stream_of_session.opened(200, {})
    assert [event.name for event in stream_of_session.events(HELLO + EXPIRED)][1:] == [
        "unsubscribed"
    ]
    assert "[bookmark-expired, topic t]" in said[0]


def test_a_refusal_on_the_stream_is_the_outage() -> None:
    said: list[str] = []
    scripts = stream(HELLO, row(1)), stream(NO_ROOM), stream(HELLO, row(2), GOODBYE)
    with scripted(*scripts) as fake, Gateway(fake.address) as gateway:
        subscription = gateway.subscribe("t", trouble=said.append)
        codes = [
            (event.text, getattr(subscription.standing_error, "code", ""))
            for event in subscription
            if event.name in ("message", "refused")
        ]
    assert said == ["the stream ended", "A limit is reached [limit-reached]: No room."]
    assert [text for text, _ in codes if len(text) == 1] == ["1", "2"]
    assert codes[-1] == ("2", "")


def test_a_topic_that_is_deleted_during_an_outage_is_removed() -> None:
    with (
        scripted(stream(HELLO, row(1)), plain(204)) as fake,
        Gateway(fake.address) as gateway,
    ):
        *_, last = gateway.subscribe("t", trouble=lambda sentence: None)
    assert (last.name, last.fields) == ("unsubscribed", {"topic": "t", "reason": "REMOVED"})
