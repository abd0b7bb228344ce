"""Bodies of requests as models: strict JSON in; a checked object, or a problem with its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from tidegate.app.http.problems import PROBLEMS, Problem, reference_token, unknown_field
from tidegate.keys.errors import JsonInvalid
from tidegate.keys.jsontext import check_json, decoded

DEFAULT_CODE = "options-invalid"

# What pydantic found -> the rest of the sentence that begins with the field's name.
_WANTED: Mapping[str, str] = {
    "string_type": "is a text",
    "bool_type": "is true or false",
    "list_type": "is a list",
    "missing": "is missing",
}


class Strict(BaseModel):
    """A JSON object with these fields and no others, each of its own type.

    `code`: of the problem about it and its fields; `codes`: of fields with one of their own.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    code: ClassVar[str] = DEFAULT_CODE
    codes: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, document: Any) -> Any:
        """Refuse what is no object, and the first field that nobody knows."""
        if not isinstance(document, dict):
            raise invalid(cls.code, "A JSON object is wanted.")
        if any(name not in cls.model_fields for name in document):
            problem = unknown_field(cls.code, document, cls.model_fields)
            raise invalid(cls.code, problem.detail, problem.pointer or "")
        return document


Document = TypeVar("Document", bound=Strict)


def invalid(code: str, detail: str, pointer: str = "") -> PydanticCustomError:
    """What a validator raises: a problem at its field, or at `pointer` below it."""
    return PydanticCustomError(code, "{detail}", {"detail": detail, "pointer": pointer})


def read(model: type[Document], body: bytes, **context: Any) -> Document:
    """A document from a request's body; validators find `context` in their info.

    Raises:
        Problem: with the position of what is no JSON, or the pointer to what does not fit.
    """
    try:
        check_json(body)
        document = decoded(body)
    except JsonInvalid as error:
        raise Problem(model.code, f"{error.detail}.", position=error.position) from None
    try:
        return model.model_validate(document, context=context)
    except ValidationError as error:
        raise _problem(error.errors(include_url=False, include_input=False)[0], model) from None


def _problem(error: ErrorDetails, model: type[Strict]) -> Problem:
    path, context = error["loc"], error.get("ctx", {})
    pointer = "".join(f"/{reference_token(part)}" for part in path)
    if error["type"] in PROBLEMS:
        return Problem(error["type"], context["detail"], pointer=pointer + context["pointer"])
    name = str(path[-1])
    reason = _WANTED.get(error["type"], f"does not fit: {error['type'].replace('_', ' ')}")
    return Problem(model.codes.get(name, model.code), f"{name} {reason}.", pointer=pointer)
