"""/openapi.json has a schema for every request and answer of each operation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from tidegate.app.definitions.topic import FIELDS, TopicDefinition
from tidegate.app.http.application import create_app
from tidegate.app.refusals import CODES, Refused
from tidegate.app.settings.settings import Settings

DOCUMENT = create_app(Settings()).openapi()
OPERATIONS = {
    operation["operationId"]: (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
NO_CONTENT = {"204", "303", "304"}
PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}
WITH_BODY = {
    "put_topic", "patch_topic", "publish", "commit", "subscribe_by_post", "open_session",
    "patch_session", "add_subscription", "patch_subscription", "explain", "login",
}  # fmt: skip


def says_something(schema: dict[str, Any]) -> bool:
    """Whether a schema tells more than that there is a value."""
    return bool({"$ref", "type", "anyOf", "oneOf", "enum"} & schema.keys())


def parts(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        for value in part.values():
            yield from parts(value)
    elif isinstance(part, list):
        for value in part:
            yield from parts(value)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_says_what_it_is(name: str) -> None:
    path, _, operation = OPERATIONS[name]
    named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
    wanted = {part[1:-1].split(":")[0] for part in path.split("/") if part.startswith("{")}
    assert operation["summary"]
    assert operation["tags"]
    assert named == wanted


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_parameter_has_a_schema_and_a_meaning(name: str) -> None:
    for parameter in OPERATIONS[name][2].get("parameters", []):
        assert says_something(parameter["schema"]), parameter
        assert parameter["description"], parameter
        assert "default" not in parameter["schema"] or parameter["schema"]["default"] is not None


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_body_has_a_schema(name: str) -> None:
    operation = OPERATIONS[name][2]
    assert ("requestBody" in operation) == (name in WITH_BODY)
    for content in operation.get("requestBody", {"content": {}})["content"].values():
        assert says_something(content["schema"])


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_has_a_schema(name: str) -> None:
    responses = OPERATIONS[name][2]["responses"]
    assert any(status[0] in "23" for status in responses)
    for status, response in responses.items():
        assert response["description"]
        content = response.get("content", {})
        assert bool(content) != (status in NO_CONTENT), (status, content)
        if status[0] in "45":
            assert content == {"application/problem+json": PROBLEM}
        for media_type, each in content.items():
            assert says_something(each["schema"])
            if media_type in ("text/event-stream", "application/x-ndjson"):
                assert says_something(each["itemSchema"])


def test_a_refusal_is_a_problem_with_a_code() -> None:
    schema = DOCUMENT["components"]["schemas"]["Problem"]
    assert set(schema["properties"]["code"]["enum"]) == set(CODES)
    assert set(schema["required"]) == {"type", "title", "status", "detail", "code"}


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    used = {part["$ref"] for part in parts(DOCUMENT) if isinstance(part.get("$ref"), str)}
    assert used == {f"#/components/schemas/{name}" for name in schemas}
    for schema in schemas.values():
        Draft202012Validator({**schema, "components": DOCUMENT["components"]})


STATUSES = {
    "put_topic": {"200", "201", "400", "403", "404", "409", "412", "413", "415", "422"},
    "publish": {"200", "201", "400", "404", "409", "412", "413", "415", "422", "429", "503"},
    "list_topics": {"200", "304"},
    "readyz": {"200", "503"},
    "open_session": {"201", "400", "429", "503"},
    "delete_topic": {"204", "404", "409", "412"},
    "subscribe": {"200", "204", "410", "429"},
}


@pytest.mark.parametrize("name", STATUSES)
def test_statuses_that_a_client_must_expect(name: str) -> None:
    assert OPERATIONS[name][2]["responses"].keys() >= STATUSES[name]


HEADERS = {
    ("put_topic", "201"): "ETag",
    ("list_topics", "304"): "ETag",
    ("open_session", "201"): "Location",
    ("add_subscription", "201"): "Location",
    ("open_session", "429"): "Retry-After",
    ("read_sow", "200"): "Tidegate-Bookmark",
    ("read_journal", "200"): "Tidegate-Bookmark",
}


@pytest.mark.parametrize(("name", "status"), HEADERS)
def test_headers_of_answers(name: str, status: str) -> None:
    assert HEADERS[name, status] in OPERATIONS[name][2]["responses"][status]["headers"]


def test_what_may_be_left_out() -> None:
    """A session is opened by an empty body too."""
    assert OPERATIONS["open_session"][2]["requestBody"]["required"] is False
    limit = {p["name"]: p for p in OPERATIONS["list_topics"][2]["parameters"]}["limit"]
    assert limit["schema"].items() >= {"type": "integer", "minimum": 1, "maximum": 1000}.items()
    assert limit["required"] is False


def test_a_definition_s_fields_and_defaults_are_those_of_its_reader() -> None:
    """The reader gives codes and pointers of its own; the document must not say otherwise."""
    declared = DOCUMENT["components"]["schemas"]["TopicDefinition"]["properties"]
    assert list(declared) == list(FIELDS)
    shown = TopicDefinition.parse(b"{}").document()
    defaults = {name: each["default"] for name, each in declared.items() if "default" in each}
    assert defaults.items() <= shown.items()
    topic = DOCUMENT["components"]["schemas"]["Topic"]
    assert set(topic["required"]) == set(topic["properties"]) - {"reason"} > set(FIELDS)
    for patched in DOCUMENT["components"]["schemas"]["TopicPatch"]["properties"].values():
        assert {"type": "null"} in patched["anyOf"]


@pytest.mark.parametrize("series", [{}, {"type": "series"}, {"key": ["/k"], "retain": None}])
def test_a_definition_that_is_read_is_as_declared(series: dict[str, Any]) -> None:
    components = {"components": DOCUMENT["components"]}
    shown = TopicDefinition.parse(json.dumps(series).encode()).document()
    schema = {"$ref": "#/components/schemas/TopicDefinition", **components}
    for document in (series, shown):
        assert Draft202012Validator(schema).is_valid(document), document


UNREADABLE = [{"zzq": 1}, {"key": "/k"}, {"type": "zzq"}, {"history": {}}, {"source": {}}]


@pytest.mark.parametrize("document", UNREADABLE)
def test_a_definition_that_is_refused_is_not_as_declared(document: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        TopicDefinition.parse(json.dumps(document).encode())
    schema = {"$ref": "#/components/schemas/TopicDefinition", "components": DOCUMENT["components"]}
    assert not Draft202012Validator(schema).is_valid(document)
