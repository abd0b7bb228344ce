"""A gateway over HTTP on the cases that it shares with clients and pipeline."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import click
import pytest
import pytest_asyncio

from tests.support.gateways import JSON, Running, running_gateway
from tests.support.rules import rule
from tests.support.vectors import Vector, each_vector, vectors
from tidegate.app.cli.arguments import SECONDS
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings
from tidegate.app.streams.cursor import parse_cursor
from tidegate.app.streams.subscribe_request import UNKNOWN, place_of, places_of
from tidegate.app.topics.query import SowQuery
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Frame
from tidegate.conflation.steps import finished
from tidegate.keys.jsontext import are_equal
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Duration

shared = pytest.mark.asyncio(loop_scope="module")
PATCH = {"Content-Type": "application/merge-patch+json"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running() -> AsyncIterator[Running]:
    async with running_gateway() as running:
        yield running


@shared
async def test_a_topics_key_is_shown_in_the_one_spelling(running: Running) -> None:
    for at, vector in enumerate(vectors("paths", "paths")):
        answer = await running.http.put(f"/v1/topics/p{at}", json={"key": [vector["text"]]})
        assert answer.json()["key"] == [vector["spelling"]], vector


@shared
async def test_a_topic_whose_key_is_no_path_is_refused(running: Running) -> None:
    for vector in vectors("paths", "refused"):
        answer = await running.http.put("/v1/topics/no", json={"key": ["/k", vector["text"]]})
        problem = answer.json()
        assert (problem["code"], problem["pointer"]) == ("key-invalid", "/key"), vector


@rule("key-1", "key-2")
@shared
async def test_a_record_is_kept_and_found_under_its_key(running: Running) -> None:
    for at, vector in enumerate(vectors("keys", "records")):
        name = f"k{at}"
        await running.topic(name, vector["key"])
        await running.publish_lines(vector["record"].strip().encode(), name)
        answer = await running.http.get(f"/v1/topics/{name}/sow?format=envelope")
        assert f'"key":{vector["text"]},' in answer.text, vector
        path = f"/v1/topics/{name}/sow/{quote(vector['text'], safe='')}"
        assert (await running.http.get(path)).status_code == 200, vector


@rule("key-2", "key-3")
@shared
async def test_a_message_without_a_key_is_refused(running: Running) -> None:
    for at, vector in enumerate(vectors("keys", "refused")):
        await running.topic(f"no-key{at}", vector["key"])
        answer = await running.http.post(
            f"/v1/topics/no-key{at}/messages", content=vector["record"], headers=JSON
        )
        assert answer.json()["code"] == vector["code"], vector


@rule("key-1")
@shared
async def test_a_record_is_read_and_deleted_however_its_key_is_written(running: Running) -> None:
    await running.topic("written", ["/symbol", "/n"])
    for vector in vectors("keys", "written"):
        symbol, number = json.loads(vector["key"])
        await running.publish({"symbol": symbol, "n": number}, topic="written")
        text = quote(vector["text"], safe="")
        read = await running.http.get(f"/v1/topics/written/sow/{text}")
        assert are_equal(json.dumps(read.json()["n"]).encode(), json.dumps(number).encode()), vector
        deleted = await running.http.delete(f"/v1/topics/written/sow?key={text}")
        assert deleted.json() == {"deleted": 1}, vector
    for vector in vectors("keys", "written_refused"):
        text = quote(vector["text"], safe="")
        answer = await running.http.delete(f"/v1/topics/written/sow?key={text}")
        assert answer.json()["code"] in {"key-invalid", "options-invalid"}, vector


@rule("view-1", "view-7")
@each_vector("order", "orders")
async def test_a_query_returns_rows_in_order(vector: Vector) -> None:
    rows = [Frame(at, value.encode(), key) for at, (key, value) in enumerate(vector["rows"])]
    asked = {"order_by": vector["order"], "top_n": "100"}
    query = SowQuery.read(asked, Kind.JSON, 1_000)
    assert await query.rows(rows[::-1], "px") == rows


@each_vector("order", "refused")
def test_a_query_with_no_order_is_refused_with_its_place(vector: Vector) -> None:
    with pytest.raises(Refused) as refused:
        SowQuery.read({"order_by": vector["order"]}, Kind.JSON, 1_000)
    found = refused.value.code, refused.value.position
    assert found == ("options-invalid", vector["position"])


@rule("delta-5")
@shared
async def test_a_number_is_kept_and_sent_as_it_was_published(running: Running) -> None:
    await running.topic("numbers", ["/id"])
    cases = vectors("numbers", "numbers")
    lines = [f'{{"id":{at},"v":{vector["text"]}}}' for at, vector in enumerate(cases)]
    await running.publish_lines("\n".join(lines).encode(), "numbers")
    answer = await running.http.get("/v1/topics/numbers/sow")
    assert answer.text.splitlines() == lines
    async with running.subscribe(topic="numbers") as stream:
        await stream.until("group_begin")
        assert [(await stream.next()).text for _ in lines] == lines


@rule("key-3")
@shared
async def test_what_is_no_number_is_refused_where_it_stands(running: Running) -> None:
    await running.topic("refused", ["/id"])
    before = '{"id":1,"v":'
    for vector in [*vectors("numbers", "refused"), *vectors("numbers", "not_json")]:
        answer = await running.http.post(
            "/v1/topics/refused/messages", content=f"{before}{vector['text']}}}", headers=JSON
        )
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (400, "message-invalid"), vector
        if "position" in vector:
            assert problem["position"] == len(before) + vector["position"], vector
    assert await running.sow("refused") == []


@each_vector("durations", "durations")
def test_a_setting_and_an_argument_are_durations(vector: Vector) -> None:
    settings = Settings(hsts=vector["text"], tls_cert="cert.pem")
    assert settings.hsts == Duration(vector["ns"])
    assert SECONDS.convert(vector["text"], None, None) == vector["ns"] / 1e9


@each_vector("durations", "refused")
def test_no_setting_and_no_argument_is_anything_else(vector: Vector) -> None:
    with pytest.raises(ValueError, match="hsts"):
        Settings(hsts=vector["text"])
    with pytest.raises(click.BadParameter):
        SECONDS.convert(vector["text"], None, None)


@rule("key-1", "delta-5")
@shared
async def test_a_delta_is_applied_to_its_record(running: Running) -> None:
    await running.topic("deltas", ["/id"])
    for at, vector in enumerate(vectors("deltas", "patches")):
        await running.publish_lines(f'{{"id":{at},"r":{vector["record"]}}}'.encode(), "deltas")
        patch = f'{{"id":{at},"r":{vector["patch"]}}}'
        answer = await running.http.post("/v1/topics/deltas/messages", content=patch, headers=PATCH)
        assert answer.status_code == 200, vector
        record = await running.http.get(f"/v1/topics/deltas/sow/[{at}]")
        assert record.text.strip() == f'{{"id":{at},"r":{vector["result"]}}}', vector


@each_vector("resume", "bookmarks")
def test_an_id_is_a_place_in_a_topic(vector: Vector) -> None:
    assert place_of(vector["text"]) == Bookmark(vector["epoch"], vector["offset"])


@each_vector("resume", "bookmarks_refused")
def test_an_id_that_is_none_is_a_place_that_no_topic_knows(vector: Vector) -> None:
    assert place_of(vector["text"]) == UNKNOWN


@each_vector("resume", "cursors")
def test_an_id_of_several_subscriptions_is_a_session_and_a_number(vector: Vector) -> None:
    found = parse_cursor(vector["text"])
    assert found is not None
    assert (found.session, found.number) == (vector["session"], vector["number"])


@each_vector("resume", "cursors_refused")
def test_what_is_no_such_id_is_of_no_session(vector: Vector) -> None:
    assert parse_cursor(vector["text"]) is None


@each_vector("resume", "places")
def test_the_places_that_a_reader_sends_are_those_of_its_topics(vector: Vector) -> None:
    marks: dict[str, str] = vector["bookmarks"]
    if marks:
        text = ",".join(f"{topic}={mark}" for topic, mark in marks.items())
        assert finished(places_of(text)) == {name: place_of(mark) for name, mark in marks.items()}
