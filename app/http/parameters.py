"""Parameters of routes, declared for FastAPI and read strictly.

FastAPI describes them in /openapi.json and hands their values to the route. It is lenient where a
client's slip should be seen: the last of two equal parameters counts, `%ff` is a character, `1_000`
a number. `strict_request` refuses the first two for every route, `Read` replaces FastAPI's reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Self, TypeVar
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Path, Request
from fastapi.routing import APIRoute
from pydantic import ConfigDict
from starlette.types import Scope

from tidegate.app.http.requests import (
    TOPICS_PATH,
    header_value,
    posted_body,
    query_values,
    raw_path,
)
from tidegate.app.names import (
    OWN_PREFIX,
    SESSION_ID,
    SUBSCRIPTION_NAME,
    TOPIC_NAME,
    checked_session_id,
    checked_subscription_name,
    checked_topic_name,
    checked_writable_name,
)
from tidegate.app.parameters import Parameters, Read, line, text
from tidegate.app.refusals import Refused, unknown_field
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json, decoded

Model = TypeVar("Model", bound=Parameters)


def query_of(model: type[Model], scope: Scope) -> Model:
    """Read the query of a request whose route FastAPI does not read parameters for.

    Raises:
        Refused: an unknown, repeated or malformed parameter.
    """
    return model.model_validate(query_values(scope, model.codes))


async def posted_parameters(model: type[Model], request: Request) -> Model:
    """Read the parameters from a request's body, a strict JSON object of texts.

    Raises:
        Refused: options-invalid, a parameter's own code with a pointer to it, or the reason why the
            body cannot be read.
    """
    # Texts as in a query, so that one reader serves GET and POST.
    texts = texts_of(await posted_body(request), model.codes)
    # Checked here: pydantic's own error has no code and no pointer.
    for name, field in model.model_fields.items():
        if field.is_required() and name not in texts:
            raise Refused(model.codes[name], f"{name} is missing.", pointer=f"/{name}")
    return model.model_validate(texts)


def texts_of(body: bytes, parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a strict JSON object, all of them texts.

    Args:
        body: the request's body.
        parameters: name of each field -> code of the refusal when it is no text.

    Raises:
        Refused: options-invalid, or a field's own code with a pointer to it.
    """
    try:
        check_json(body)
        document = decoded(body)
    except JsonInvalid as error:
        raise Refused("options-invalid", f"{error.detail}.", position=error.position) from None
    if not isinstance(document, dict):
        raise Refused("options-invalid", "The request is a JSON object.")
    for name, value in document.items():
        if name not in parameters:
            raise unknown_field("options-invalid", document, parameters)
        if not isinstance(value, str):
            raise Refused(parameters[name], f"{name} is a text.", pointer=f"/{name}")
    return document


def _header_name(field: str) -> str:
    return field.replace("_", "-").title().replace("-Id", "-ID")


class Headers(Parameters):
    """The request's headers that an operation heeds."""

    model_config = ConfigDict(alias_generator=_header_name, populate_by_name=True)

    @classmethod
    def read(cls, scope: Scope) -> Self:
        """Read the headers of a request whose route FastAPI does not read parameters for.

        Raises:
            Refused: a repeated or malformed header.
        """
        return cls.model_validate(cls.texts(scope))

    @classmethod
    def texts(cls, scope: Scope) -> dict[str, str]:
        """Return the headers that there are, each once and of printable ASCII.

        Raises:
            Refused: one is not.
        """
        found = {
            name: header_value(scope, name.lower(), each.code, expected=each.expected)
            for name, each in cls.reads.items()
        }
        return {name: value for name, value in found.items() if value is not None}


_NAME: dict[str, Any] = {"type": "string", "pattern": f"^{TOPIC_NAME.pattern}$"}
_NAME_MEANING = "Name of the topic: 1 to 255 of A-Z a-z 0-9 . _ -"

TOPIC_TEXT = Read(checked_topic_name, _NAME, "topic-invalid")
TopicPath = Annotated[str, TOPIC_TEXT, Path(description=_NAME_MEANING)]
WritableTopicPath = Annotated[
    str,
    Read(checked_writable_name, _NAME, "topic-invalid"),
    Path(description=f"{_NAME_MEANING}. Those that begin with {OWN_PREFIX} are read-only"),
]
SessionPath = Annotated[
    str,
    Read(
        partial(checked_session_id, code="session-unknown", detail="There is no such session."),
        {"type": "string", "pattern": f"^{SESSION_ID}$"},
    ),
    Path(description="Id of the session"),
]
SubscriptionPath = Annotated[
    str,
    Read(checked_subscription_name, {"type": "string", "pattern": f"^{SUBSCRIPTION_NAME}$"}),
    Path(description="Name of the subscription in its session"),
]
_EVENT_ID = re.compile(r"[A-Za-z0-9._~-]{0,128}", re.ASCII)
_EVENT_ID_SCHEMA: dict[str, Any] = {"type": "string", "pattern": f"^{_EVENT_ID.pattern}$"}


def _checked_event_id(value: str) -> str:
    if not _EVENT_ID.fullmatch(value):
        raise Refused("bookmark-invalid", "An event id is at most 128 of A-Z a-z 0-9 . _ ~ -.")
    return value


EVENT_ID = Read(_checked_event_id, _EVENT_ID_SCHEMA, "bookmark-invalid")
LAST_EVENT_ID = line("bookmark-invalid", reader=_checked_event_id, **_EVENT_ID_SCHEMA)


async def record_key_in_path(
    request: Request,
    record_key: Annotated[str, text(), Path(description='JSON array of the key: ["IBM",7]')],
) -> str:
    """Return the key in the path of a record, from the path as the client sent it.

    Raises:
        Refused: key-invalid.
    """
    return record_key_text(request.scope)


def record_key_text(scope: Scope) -> str:
    """Return what follows `/v1/topics/{topic}/sow/`, decoded once and strictly.

    Raises:
        Refused: key-invalid when it is no UTF-8.
    """
    # From the raw path: the server's decoding turns %2F of a key into a separator.
    encoded = raw_path(scope).removeprefix(TOPICS_PATH).split(b"/", 2)[2:]
    try:
        return unquote_to_bytes(encoded[0]).decode("utf-8") if encoded else ""
    except UnicodeDecodeError:
        raise Refused("key-invalid", "The key in the path is not valid UTF-8.") from None


async def strict_request(request: Request) -> None:
    """Refuse parameters that the route does not declare, that come twice or are no UTF-8.

    Raises:
        Refused: options-invalid, or the code of the parameter.
    """
    # FastAPI hands over the last of two equal parameters, and nothing of an unknown one.
    query, headers = _known(request.scope["route"])
    query_values(request.scope, query.codes)
    headers.texts(request.scope)


STRICT = (Depends(strict_request),)
"""Dependencies of a router whose routes take what they declare and nothing else."""

_Known = tuple[type[Parameters], type[Headers]]

_KNOWN: dict[Callable[..., Any], _Known] = {}
"""Parameters that endpoints declare, found at the first request; routes are not hashable."""


def _known(route: APIRoute) -> _Known:
    # Looking through the route's signature at each request would cost more than reading it.
    found = _KNOWN.get(route.endpoint)
    if found is None:
        query, headers = route.dependant.query_params, route.dependant.header_params
        found = (_model(query) or Parameters, _model(headers) or Headers)
        _KNOWN[route.endpoint] = found
    return found


def _model(fields: Sequence[Any]) -> Any:
    """Return the one model of the parameters of a place, or None."""
    return next((field.field_info.annotation for field in fields), None)


def described(
    topic: str, query: type[Parameters], headers: type[Headers], *, pattern: bool = False
) -> list[dict[str, Any]]:
    """Describe the parameters of a route that reads them by itself, as FastAPI would.

    `pattern`: the topic in its path may be one.
    """
    # FastAPI takes some 150 us to read as many as a publish has, a sixth of the whole request.
    schema = {"type": "string"} if pattern else _NAME
    path = {"name": "topic", "in": "path", "required": True, "description": topic, "schema": schema}
    return [path, *_described("query", query), *_described("header", headers)]


def _described(place: str, model: type[Parameters]) -> Iterator[dict[str, Any]]:
    schema = model.model_json_schema()
    for name, each in schema["properties"].items():
        shown = {key: value for key, value in each.items() if key not in ("description", "title")}
        yield {
            "name": name,
            "in": place,
            "required": name in schema.get("required", ()),
            "description": each["description"],
            "schema": shown,
        }
