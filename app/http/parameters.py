"""Parameters of routes, declared for FastAPI and read strictly.

FastAPI describes them in /openapi.json and hands their values to the route. It is lenient where a
client's slip should be seen: the last of two equal parameters counts, `%ff` is a character, `1_000`
a number. `strict_request` refuses the first two for every route, `Read` replaces FastAPI's reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Path, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema
from starlette.types import Scope

from tidegate.app.http.requests import (
    OWN_PREFIX,
    SESSION_ID,
    SUBSCRIPTION_NAME,
    TOPIC_NAME,
    TOPICS_PATH,
    boolean,
    checked_session_id,
    checked_subscription_name,
    checked_topic_name,
    checked_writable_name,
    header_value,
    integer,
    one_of,
    posted_body,
    query_values,
    raw_path,
)
from tidegate.app.refusals import Refused, unknown_field
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json, decoded

INVALID = "options-invalid"


@dataclass(frozen=True, slots=True)
class Read:
    """The reading of a parameter: from text to value, in place of FastAPI's own rules.

    `schema`: its description in /openapi.json. `code`: of the problem if it cannot be read at all;
    `expected`: a sentence for a header that holds something else than a short printable text.
    """

    reader: Callable[[str], Any]
    schema: Mapping[str, Any]
    code: str = INVALID
    expected: str | None = None

    def __get_pydantic_core_schema__(
        self, source: object, inner: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let the reader alone decide."""
        # Pydantic wraps a ValueError only: a `Refused` reaches the client as it was raised.
        return core_schema.no_info_plain_validator_function(self.reader)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, inner: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the declared schema."""
        return dict(self.schema)


class Parameters(BaseModel):
    """The query parameters, or the headers, of one operation."""

    model_config = ConfigDict(frozen=True)

    reads: ClassVar[Mapping[str, Read]] = {}
    codes: ClassVar[Mapping[str, str]] = {}
    """By the names that the client knows: how each is read, and the code where it cannot be."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Note how each field is read."""
        cls.reads = {
            info.alias or name: next(part for part in info.metadata if isinstance(part, Read))
            for name, info in cls.model_fields.items()
        }
        cls.codes = {name: each.code for name, each in cls.reads.items()}

    @classmethod
    def read(cls, scope: Scope) -> Self:
        """Read the query of a request whose route FastAPI does not read parameters for.

        Raises:
            Refused: an unknown, repeated or malformed parameter.
        """
        return cls.model_validate(query_values(scope, cls.codes))

    @classmethod
    async def posted(cls, request: Request) -> Self:
        """Read the parameters from a request's body, a strict JSON object of texts.

        Raises:
            Refused: options-invalid, a parameter's own code with a pointer to it, or what stands
                against reading the body at all.
        """
        # Texts as in a query, so that one reader serves GET and POST.
        texts = texts_of(await posted_body(request), cls.codes)
        # Checked here: pydantic's own error has no code and no pointer.
        for name, field in cls.model_fields.items():
            if field.is_required() and name not in texts:
                raise Refused(cls.codes[name], f"{name} is missing.", pointer=f"/{name}")
        return cls.model_validate(texts)

    def given(self) -> dict[str, Any]:
        """Return the values that the request named, by the names that the client knows."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def texts_of(body: bytes, parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a strict JSON object, all of them texts.

    Args:
        body: the request's body.
        parameters: name of each field -> code of the problem when it is no text.

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


def text(code: str = INVALID, expected: str | None = None, **schema: Any) -> Read:
    """Take any text; what uses the parameter checks it."""
    return Read(str, {"type": "string"} | schema, code, expected)


def line(
    code: str = INVALID,
    expected: str | None = None,
    reader: Callable[[str], Any] = str,
    **schema: Any,
) -> Read:
    """Take a header, without the space around its value (RFC 9110, 5.5)."""

    def read(value: str) -> Any:
        # The space is no part of the value, though FastAPI hands it over.
        return reader(value.strip(" \t"))

    return Read(read, {"type": "string"} | schema, code, expected)


def word(name: str, choices: Sequence[str], code: str = INVALID) -> Read:
    """Take one of a few words."""
    # Not an enumeration of pydantic's, whose errors repeat what the client sent.
    reader = partial(one_of, choices=tuple(choices), code=code, what=name)
    return Read(reader, {"type": "string", "enum": [str(choice) for choice in choices]}, code)


def whole(name: str, least: int, most: int, code: str = INVALID) -> Read:
    """Take a whole number in plain digits."""
    reader = partial(integer, least=least, most=most, code=code, what=name)
    return Read(reader, {"type": "integer", "minimum": least, "maximum": most}, code)


def flag(name: str, code: str = INVALID) -> Read:
    """Take `true` or `false`."""
    return Read(partial(boolean, code=code, what=name), {"type": "boolean"}, code)


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


def described(topic: str, query: type[Parameters], headers: type[Headers]) -> list[dict[str, Any]]:
    """Describe the parameters of a route that reads them by itself, as FastAPI would."""
    # FastAPI takes some 150 us to read as many as a publish has, a sixth of the whole request.
    path = {"name": "topic", "in": "path", "required": True, "description": topic, "schema": _NAME}
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
