"""A JSON Schema document: its schemas by JSON pointer, and where its references lead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DIALECT_FAMILY = "https://json-schema.org/draft/2020-12/"
DIALECT_POINTER = "?dialect"
"""Stands for the dialect's own schema, which a document may refer to without having it."""

# Compiling takes time that grows with these, the integers' with their square.
SUBSCHEMAS_MAX = 2_000
VALUES_MAX = 20_000
DIGITS_MAX = 300
LARGE_INTEGER = 1 << 53  # beyond it a double has not every integer
LARGE_INTEGERS_MAX = 200

BRANCH_LISTS = ("allOf", "anyOf", "oneOf")
BRANCHES = ("not", "if", "then", "else")
BRANCH_MAPS = ("dependentSchemas", "dependencies")
SCHEMA_MAPS = ("$defs", "definitions", "properties", "patternProperties", *BRANCH_MAPS)
SCHEMA_LISTS = (*BRANCH_LISTS, "prefixItems")
SCHEMAS = (
    *BRANCHES, "items", "contains", "additionalProperties", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip


class SchemaInvalid(ValueError):
    """Not a schema that can be used; `pointer` is where, inside the schema."""

    def __init__(self, detail: str, pointer: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer


class SchemaDocument:
    """A schema and every schema in it, by pointer.

    Args:
        document: a schema that its dialect's own schema takes.

    Raises:
        SchemaInvalid: it has too many schemas, or a `$id` that makes its references uncertain.
    """

    def __init__(self, document: dict[str, Any] | bool) -> None:
        self.schemas = _schemas(document)
        self.anchors = _anchors(self.schemas)
        self._base = urldefrag(document.get("$id", "") if isinstance(document, dict) else "").url
        if self._base.startswith(DIALECT_FAMILY):
            raise SchemaInvalid("the $id is another schema's", "/$id")

    def branches(self, schema: dict[str, Any], pointer: str) -> Iterator[str]:
        """Yield the pointers of the schemas that are evaluated at the same value as a schema."""
        for keyword in BRANCH_LISTS:
            yield from (f"{pointer}/{keyword}/{n}" for n in range(len(schema.get(keyword, ()))))
        yield from (f"{pointer}/{keyword}" for keyword in BRANCHES if keyword in schema)
        for keyword in BRANCH_MAPS:
            for name, inner in schema.get(keyword, {}).items():
                if isinstance(inner, dict | bool):
                    yield f"{pointer}/{keyword}/{escaped(name)}"
        for keyword in ("$ref", "$dynamicRef"):
            if keyword in schema:
                yield from self._resolve(schema[keyword])

    def _resolve(self, reference: str) -> list[str]:
        """Return the pointers of the schemas that a reference leads to."""
        inside = reference.startswith("#")
        place, fragment = urldefrag(reference if inside else urljoin(self._base, reference))
        place = self._base if inside else place
        if place != self._base:
            if place.startswith(DIALECT_FAMILY):
                return [DIALECT_POINTER]
        elif fragment[:1] in ("", "/"):
            pointer = unquote(fragment)
            if pointer in self.schemas:
                return [pointer]
        elif fragment in self.anchors:
            return self.anchors[fragment]
        raise SchemaInvalid("a reference leads to no schema in the schema")


def check_size(document: object) -> None:
    """Refuse a schema that takes too long to compile; comes before every other check.

    Raises:
        SchemaInvalid: it has too many values, a number of too many digits, or too many large
            integers.
    """
    large = 0
    for size, value in enumerate(values_in(document), 1):
        check_bound(size, VALUES_MAX, f"a schema has at most {VALUES_MAX} values", "")
        if isinstance(value, int) and abs(value) >= LARGE_INTEGER:
            if abs(value) >= 10**DIGITS_MAX:
                raise SchemaInvalid(f"a number of a schema has at most {DIGITS_MAX} digits")
            # The dialect's own schema compares each with each, in `required` for example.
            large += 1
            detail = f"a schema has at most {LARGE_INTEGERS_MAX} integers beyond 2^53"
            check_bound(large, LARGE_INTEGERS_MAX, detail, "")


def _schemas(document: dict[str, Any] | bool) -> dict[str, Any]:
    """Return every schema in a schema by its pointer."""
    schemas: dict[str, Any] = {}
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        pointer, schema = waiting.pop()
        schemas[pointer] = schema
        check_bound(
            len(schemas), SUBSCHEMAS_MAX, f"a schema has at most {SUBSCHEMAS_MAX} schemas", ""
        )
        if not isinstance(schema, dict):
            continue
        if "$id" in schema and pointer:
            # Inside, references would mean something else; one base keeps every one certain.
            raise SchemaInvalid("only the outermost schema has $id", f"{pointer}/$id")
        for keyword in SCHEMA_MAPS:
            for name, inner in schema.get(keyword, {}).items():
                if isinstance(inner, dict | bool):
                    waiting.append((f"{pointer}/{keyword}/{escaped(name)}", inner))
        for keyword in SCHEMA_LISTS:
            numbered = enumerate(schema.get(keyword, ()))
            waiting.extend((f"{pointer}/{keyword}/{number}", inner) for number, inner in numbered)
        inners = ((f"{pointer}/{keyword}", schema.get(keyword)) for keyword in SCHEMAS)
        waiting.extend((at, inner) for at, inner in inners if inner is not None)
    return schemas


def _anchors(schemas: dict[str, Any]) -> dict[str, list[str]]:
    """Return the pointers of the schemas that have each anchor; a name may have several."""
    anchors: dict[str, list[str]] = {}
    for pointer, schema in schemas.items():
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema, dict) and keyword in schema:
                anchors.setdefault(schema[keyword], []).append(pointer)
    return anchors


def check_bound(figure: int, limit: int, detail: str, pointer: str) -> None:
    """Refuse a schema that has more of something than the limit.

    Raises:
        SchemaInvalid: with the detail and the pointer.
    """
    if figure > limit:
        raise SchemaInvalid(detail, pointer)


def values_in(value: object) -> Iterator[object]:
    """Yield a value and every value inside."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        inner: Iterable[object] = ()
        if isinstance(value, dict):
            inner = value.values()
        elif isinstance(value, list):
            inner = value
        waiting.extend(inner)


def size_of(value: object) -> int:
    """Count a value and every value inside."""
    return sum(1 for _ in values_in(value))


def escaped(name: str) -> str:
    """Return a name as a token of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
