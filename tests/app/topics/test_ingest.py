"""A body becomes messages: strictly, all or none, in one order, without holding the loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.support.place import LINES, Place, keyed
from tests.support.rules import rule
from tidegate.app.refusals import Refused
from tidegate.app.stores.items import Item, Message
from tidegate.app.stores.store import Appended, Producer, Retry
from tidegate.app.topics.ingest import COUNTED_AT_ONCE, BodyForm
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import RemovalReason

SPARK = {"topic": "px", "interval": "1s", "engine": "spark"}


async def check(place: Place, body: bytes, *, lined: bool = True) -> list[Item]:
    return list(await place.ingest.check(place.catalog.get("px"), body, BodyForm(lined=lined)))


async def test_lines_become_messages_with_their_keys() -> None:
    messages = await check(await keyed(), b'{"k":1.0}\r\n\n \t\n  {"k":"a"}  \n')
    assert messages == [Message(b'{"k":1.0}', "[1]"), Message(b'{"k":"a"}', '["a"]')]


async def test_one_message_may_stand_on_several_lines() -> None:
    [message] = await check(await keyed(), b'\n{"k":1,\r\n"s":"a b"}\n', lined=False)
    assert message == Message(b'{"k":1,  "s":"a b"}', "[1]")


async def test_a_plain_topic_takes_any_value_and_knows_no_key() -> None:
    place = Place()
    await place.put("px")
    assert await check(place, b'null\n1\n"x"\n[]') == [
        Message(text, "") for text in (b"null", b"1", b'"x"', b"[]")
    ]


REFUSED = [
    (b'{"k":1}\n{"k":', "message-invalid", 2),
    (b'{"k":1}\n\n{"k":NaN}', "message-invalid", 3),
    (b'{"k":1} {"k":2}', "message-invalid", 1),
    (b'{"k":"\\ud800"}', "message-invalid", 1),
    (b'{"k":"\xff"}', "message-invalid", 1),
    (b'{"k":1}\n\x0c\n', "message-invalid", 2),
    (b'{"k":1}\n' + b"[" * 65 + b"]" * 65, "message-invalid", 2),
    (b"\xef\xbb\xbf{}", "message-invalid", 1),
    (b'{"k":1}\n{"j":1}', "key-missing", 2),
    (b'{"k":1}\n7', "key-missing", 2),
    (b'{"k":null}', "key-invalid", 1),
    (b'{"k":[1]}', "key-invalid", 1),
    (b'{"k":18446744073709551616}', "key-invalid", 1),
]


@pytest.mark.parametrize(("body", "code", "line"), REFUSED, ids=lambda given: str(given)[:40])
async def test_one_bad_line_refuses_the_request(body: bytes, code: str, line: int) -> None:
    with pytest.raises(Refused) as refused:
        await check(await keyed(), body)
    assert (refused.value.code, refused.value.line) == (code, line)


BEYOND = [
    (b'{"k":1}\n{"k":2,"v":1e400}', BodyForm(lined=True), 2, 11),
    (b'{"k":1,"v":[1e308,' + b"9" * 309 + b"]}", BodyForm(lined=True), 1, 18),
    (b'{"k":1,"v":-1E+309}', BodyForm(), None, 11),
    (b'{"k":1,"v":1e400}', BodyForm(delta=True), None, 11),
    (b'{"value":{"k":1,"v":1e400}}', BodyForm(lined=True, enveloped=True), 1, 20),
    (b'{"key":[1],"reason":"deleted","value":1e400}', BodyForm(enveloped=True), None, 38),
]


@rule("key-3")
@pytest.mark.parametrize(
    ("body", "form", "line", "position"), BEYOND, ids=lambda given: str(given)[:40]
)
async def test_a_number_beyond_a_double_is_refused_wherever_a_message_enters(
    body: bytes, form: BodyForm, line: int | None, position: int
) -> None:
    place = await keyed()
    with pytest.raises(Refused, match="beyond a double") as refused:
        await place.ingest.check(place.catalog.get("px"), body, form)
    problem = refused.value
    assert (problem.code, problem.line, problem.position) == ("message-invalid", line, position)


async def test_text_that_looks_like_such_a_number_is_text() -> None:
    body = b'{"k":1,"s":"1e400, ' + b"9" * 5_000 + b'"}\n{"k":2,"v":1.5e308}'
    assert [message.payload for message in await check(await keyed(), body)] == body.split(b"\n")


@pytest.mark.parametrize("good", [b'{"k":1}', b"", b'{"k":"' + b"x" * 2_000 + b'"}'])
async def test_lines_are_counted_over_the_pieces_of_a_large_request(good: bytes) -> None:
    with pytest.raises(Refused) as refused:
        await check(await keyed(), (good + b"\n") * 9_999 + b"?")
    assert refused.value.line == 10_000


async def test_lines_are_counted_where_some_are_read_together_and_some_are_not() -> None:
    together, one_by_one = b'{"k":"a"}\n' * 5_000, b'\n{"k":1.5}\n' * 4_000
    body = together + one_by_one + together
    assert len(await check(await keyed(), body)) == 14_000
    with pytest.raises(Refused) as refused:
        await check(await keyed(), body + b'{"k":}')
    assert refused.value.line == 18_001


async def test_exempt_lines_are_exempt() -> None:
    place = await keyed()
    form = BodyForm(lined=True, exempt=True)
    body = b'{"k":"a"}\n{"k":"b"}'
    checked = await place.ingest.check(place.catalog.get("px"), body, form)
    assert [message.exempt for message in checked if isinstance(message, Message)] == [True, True]


async def test_a_single_message_has_no_line() -> None:
    with pytest.raises(Refused) as refused:
        await check(await keyed(), b'\n{"k":}', lined=False)
    assert refused.value.line is None
    assert refused.value.position is not None


@pytest.mark.parametrize("body", [b"", b"\n\n \r\n"])
async def test_a_request_holds_a_message(body: bytes) -> None:
    for lined in (True, False):
        with pytest.raises(Refused) as refused:
            await check(await keyed(), body, lined=lined)
        assert refused.value.code == "message-invalid"


async def test_a_message_has_a_size_and_a_request_a_number_of_them() -> None:
    place = await keyed(message_bytes_max=1_024, request_messages_max=2)
    at_limit = b'{"k":"' + b"x" * (1_024 - 8) + b'"}'
    assert len(await check(place, at_limit + b"\n" + at_limit)) == 2
    with pytest.raises(Refused) as too_large:
        await check(place, b'{"k":1}\n' + at_limit.replace(b"xx", b"xxx", 1))
    assert (too_large.value.code, too_large.value.line) == ("message-too-large", 2)
    with pytest.raises(Refused) as too_many:
        await check(place, b'{"k":1}\n' * 3)
    assert too_many.value.code == "message-too-large"


@pytest.mark.parametrize("body", [b"\n" * (1 << 18), b" 1\n" * 50_000], ids=["blank", "small"])
async def test_other_work_runs_while_a_large_request_is_checked(body: bytes) -> None:
    place = Place()
    await place.put("px")
    in_steps, iterations = await iterations_during(place.ingest.check_plain(body, LINES))
    assert iterations > len(body) / (64 << 10)
    assert isinstance(in_steps, Refused | None)


async def iterations_during(call: Coroutine[Any, Any, object]) -> tuple[BaseException | None, int]:
    """How the call ended, and how often the loop came round meanwhile."""
    iterations = 0
    task = asyncio.create_task(call)
    while not task.done():
        iterations += 1
        await asyncio.sleep(0)
    return task.exception(), iterations


async def test_messages_are_numbered_delivered_and_seen() -> None:
    place = await keyed()
    assert await place.say("px", {"k": 1}, {"k": 2}) == Appended(1, 2)
    assert await place.say("px", {"k": 1}) == Appended(3, 3)
    topic = place.driver.engine.topic("px")
    assert topic.head == 3
    assert [frame.offset for frame in topic.journal.after(0)] == [1, 2, 3]
    assert topic.sow is not None
    assert [frame.offset for frame in topic.sow.board.live()] == [2, 3]
    assert topic.journal.after(2)[0].timestamp_ms > 1_600_000_000_000


async def test_a_producers_number_counts_once() -> None:
    place = await keyed()
    assert await place.say("px", {"k": 1}, producer=Producer("p", 5)) == Appended(1, 1)
    for sequence in (5, 4):
        repeated = await place.say("px", {"k": 2}, producer=Producer("p", sequence))
        assert repeated.duplicate
    assert place.driver.engine.topic("px").head == 1


async def test_a_filled_topic_is_written_by_its_filler_alone() -> None:
    place = await keyed()
    await place.put("slow", key=["/k"], source=SPARK)
    for producer in (None, Producer("p", 1), Producer("tidegate.pipelines", 1)):
        with pytest.raises(Refused) as refused:
            await place.say("slow", {"k": 1}, producer=producer)
        assert refused.value.code == "topic-read-only"
    assert place.driver.engine.topic("slow").head == 0
    filled = await place.say("slow", {"k": 1}, producer=Producer("tidegate.pipeline.slow", 1))
    assert filled == Appended(1, 1)


@rule("pipeline-14")
async def test_of_two_streams_that_fill_a_topic_the_later_one_does() -> None:
    place = await keyed()
    await place.put("slow", key=["/k"], source=SPARK)
    entry = place.catalog.get("slow")

    async def commit(stream: str, run: int, sequence: int) -> Appended:
        name = f"tidegate.pipeline.{stream}"
        await place.ingest.stage(entry, await check(place, b'{"k":1}'), "s", name)
        return await place.ingest.commit(entry, Producer(name, sequence, run), ["s"])

    assert await commit("of-a-file", 5, 0) == Appended(1, 1)
    assert await commit("of-topics", 7, 0) == Appended(2, 2)
    with pytest.raises(Refused) as refused:
        await commit("of-a-file", 5, 1)
    assert refused.value.code == "producer-fenced"
    assert await commit("of-topics", 7, 1) == Appended(3, 3)
    assert await commit("of-a-file", 9, 1) == Appended(4, 4)  # it was started anew


async def test_a_topic_that_went_meanwhile_takes_nothing() -> None:
    place = await keyed()
    entry = place.catalog.get("px")
    messages = await place.ingest.check(entry, b'{"k":1}', LINES)
    await place.catalog.delete("px")
    with pytest.raises(TopicUnknown):
        await place.ingest.publish(entry, messages, None)
    await place.put("px", key=["/k"])
    with pytest.raises(TopicUnknown):
        await place.ingest.publish(entry, messages, None)
    assert place.driver.engine.topic("px").head == 0


async def test_requests_at_once_are_published_whole_and_one_after_another() -> None:
    place = await keyed(queue_messages_max=10)
    requests = [[{"k": n, "v": v} for v in range(50)] for n in range(5)]
    appended = await asyncio.gather(*(place.say("px", *request) for request in requests))
    assert sorted((one.first, one.last) for one in appended) == [
        (n * 50 + 1, n * 50 + 50) for n in range(5)
    ]
    keys = [frame.key for frame in place.driver.engine.topic("px").journal.after(0)]
    assert keys == [key for start in range(0, 250, 50) for key in [keys[start]] * 50]


async def test_a_message_fits_its_topics_schema_or_is_refused_with_its_line() -> None:
    place = Place()
    await place.put("px", key=["/k"], schema={"properties": {"v": {"type": "number"}}})
    assert len(await check(place, b'{"k":1,"v":1e300}\n{"k":2}')) == 2
    with pytest.raises(Refused) as refused:
        await check(place, b'{"k":1}\n\n{"k":2,"v":"zzq"}')
    problem = refused.value
    assert (problem.code, problem.line, problem.pointer) == ("schema-violation", 3, "/v")
    assert "zzq" not in problem.detail


@rule("topic-6")
async def test_a_message_whose_check_could_take_too_long_is_refused_with_its_line() -> None:
    place = Place()
    await place.put("px", schema={"items": {"anyOf": [{"const": n} for n in range(500)]}})
    body = json.dumps([499] * 5_000).encode()
    with pytest.raises(Refused) as refused:
        await check(place, b"1\n" + body)
    problem = refused.value
    assert (problem.code, problem.line) == ("message-too-large", 2)


@rule("topic-6")
async def test_a_schema_that_could_take_too_long_is_no_definition() -> None:
    place = Place()
    level = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)}
    with pytest.raises(Refused) as refused:
        await place.put("px", schema={"$defs": {**level, "a60": {}}, "$ref": "#/$defs/a0"})
    problem = refused.value
    assert problem.code == "topic-invalid"
    assert problem.pointer is not None
    assert problem.pointer.startswith("/schema/$defs/a")


async def test_checks_of_many_messages_leave_the_loop_to_others() -> None:
    place = Place()
    await place.put("px", schema={"anyOf": [{"const": n} for n in range(500)]})
    iterations, done = 0, asyncio.Event()

    async def others() -> None:
        nonlocal iterations
        while not done.is_set():
            iterations += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(others())
        await check(place, b"499\n" * 1_000)
        done.set()
    assert iterations > 50  # the lines are one piece of a few KiB


async def test_a_schema_may_change_while_there_are_messages() -> None:
    place = Place()
    entry, _ = await place.put("px", key=["/k"])
    await place.say("px", {"k": 1, "v": "x"})
    await place.put("px", key=["/k"], schema={"properties": {"v": {"type": "number"}}})
    assert place.catalog.get("px") is entry
    with pytest.raises(Refused):
        await place.say("px", {"k": 1, "v": "x"})


@rule("topic-5")
@pytest.mark.parametrize("payload", [b"", b"a\nb", "é".encode(), b'{"k":'])
async def test_a_text_is_taken_as_it_is(payload: bytes) -> None:
    place = Place()
    await place.put("px", type="text")
    assert await check(place, payload, lined=False) == [Message(payload)]


async def test_a_text_is_utf_8_and_bytes_are_anything() -> None:
    place = Place()
    await place.put("px", type="text")
    with pytest.raises(Refused) as refused:
        await check(place, b"ab\xff", lined=False)
    assert (refused.value.code, refused.value.position) == ("message-invalid", 2)
    await place.catalog.delete("px")
    await place.put("px", type="binary")
    assert await check(place, b"ab\xff", lined=False) == [Message(b"ab\xff")]


@pytest.mark.parametrize("kind", ["text", "binary"])
async def test_a_text_and_bytes_have_a_size_too(kind: str) -> None:
    place = Place(message_bytes_max=1_024)
    await place.put("px", type=kind)
    with pytest.raises(Refused) as refused:
        await check(place, b"x" * 1_025, lined=False)
    assert refused.value.code == "message-too-large"


async def test_messages_are_exempt_where_their_publisher_says_so() -> None:
    place = await keyed()
    await place.say("px", {"k": 1}, {"k": 2}, form=BodyForm(lined=True, exempt=True))
    await place.say("px", {"k": 1})
    journal = place.driver.engine.topic("px").journal.after(0)
    assert [frame.exempt for frame in journal] == [True, True, False]


DELTAS = BodyForm(lined=True, delta=True)


async def test_a_delta_is_published_as_the_record_that_it_makes() -> None:
    place = await keyed()
    await place.say("px", {"k": 1, "a": {"x": 1, "y": 2}, "b": 3})
    await place.say("px", {"k": 1, "a": {"x": 5}, "b": None}, form=DELTAS)
    assert place.sow("px") == [{"k": 1, "a": {"x": 5, "y": 2}}]
    newest = place.driver.engine.topic("px").journal.after(1)
    assert [frame.payload for frame in newest] == [place.live("px")[0].payload]


@rule("topic-4")
async def test_a_topic_without_records_takes_no_delta() -> None:
    place = Place()
    await place.put("px")
    with pytest.raises(Refused) as refused:
        await place.say("px", {"v": 1}, form=DELTAS)
    assert refused.value.code == "message-invalid"


async def test_the_one_record_of_a_topic_without_a_key_takes_deltas() -> None:
    place = Place()
    await place.put("px", retain=True)
    await place.say("px", {"a": 1})
    await place.say("px", {"b": 2}, {"c": 3}, form=DELTAS)
    assert place.sow("px") == [{"a": 1, "b": 2, "c": 3}]


async def test_a_bad_delta_refuses_the_request() -> None:
    place = Place(message_bytes_max=1_024)
    await place.put("px", key=["/k"], schema={"properties": {"v": {"type": "number"}}})
    await place.say("px", {"k": 1, "text": "x" * 900})
    for delta, code, pointer in (
        ({"v": 1}, "key-missing", None),
        ({"k": None}, "key-invalid", None),
        ({"k": 1, "v": "1"}, "schema-violation", "/v"),
        ({"k": 1, "more": "x" * 200}, "message-too-large", None),
    ):
        with pytest.raises(Refused) as refused:
            await place.say("px", {"k": 2, "v": 1}, delta, form=DELTAS)
        problem = refused.value
        assert (problem.code, problem.line, problem.pointer) == (code, 2, pointer)
    assert place.sow("px") == [{"k": 1, "text": "x" * 900}]


@rule("publish-1")
@pytest.mark.parametrize("code", ["schema-violation", "limit-reached"])
async def test_what_came_before_is_answered_again_whatever_refuses_it_now(code: str) -> None:
    place = await keyed(topic_keys_max=1)
    entry = place.catalog.get("px")
    retry = Retry("r", b"digest")
    body = b'{"k":1,"v":"x"}'
    first = await place.ingest.take(entry, body, LINES, None, retry)
    if code == "schema-violation":
        await place.put("px", key=["/k"], schema={"properties": {"v": {"type": "number"}}})
    else:
        await place.writer.remove(entry, place.live("px"), RemovalReason.DELETED)
        await place.say("px", {"k": 2})
    again = await place.ingest.take(entry, body, LINES, None, retry)
    assert again == Appended(first.first, first.last, duplicate=True)
    for other in (None, Retry("another", b"digest")):
        with pytest.raises(Refused) as refused:
            await place.ingest.take(entry, body, LINES, None, other)
        assert refused.value.code == code


@rule("publish-5")
@pytest.mark.parametrize("code", ["schema-violation", "message-invalid"])
async def test_a_known_number_is_a_duplicate_whatever_its_body(code: str) -> None:
    place = await keyed()
    entry = place.catalog.get("px")
    await place.ingest.take(entry, b'{"k":1,"v":"x"}', LINES, Producer("p", 7), None)
    body = b'{"k":1,"v":"x"}' if code == "schema-violation" else b"?"
    await place.put("px", key=["/k"], schema={"properties": {"v": {"type": "number"}}})
    for number in (3, 7):
        again = await place.ingest.take(entry, body, LINES, Producer("p", number), None)
        assert again == Appended(0, 0, duplicate=True, highest=7)
    for other in (Producer("p", 8), Producer("another", 7)):
        with pytest.raises(Refused) as refused:
            await place.ingest.take(entry, body, LINES, other, None)
        assert refused.value.code == code
    assert place.driver.engine.topic("px").head == 1


async def test_other_work_runs_while_the_keys_of_many_stages_are_counted() -> None:
    place = await keyed(topic_keys_max=COUNTED_AT_ONCE)
    entry = place.catalog.get("px")
    for name in "abc":
        lines = b"".join(b'{"k":"%s%d"}\n' % (name.encode(), n) for n in range(COUNTED_AT_ONCE))
        await place.ingest.stage(entry, await check(place, lines), name, None)
    committing = place.ingest.commit(entry, Producer("p", 1, run=1), ["a", "b", "c"])
    refused, iterations = await iterations_during(committing)
    assert isinstance(refused, Refused)
    assert refused.code == "limit-reached"
    assert iterations >= 3
