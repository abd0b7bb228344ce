"""What a schema can cost: the bound holds, and what has none is refused before any message."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.rules import rule
from tidegate.app.definitions.schema import WORK_MAX, Schema, SchemaViolation, SchemaWork
from tidegate.app.definitions.schema_cost import cost_of
from tidegate.app.definitions.schema_document import DIALECT, SchemaInvalid

CHECKS = """
import json, sys
from tidegate.app.definitions.schema import Schema, SchemaViolation, SchemaWork
from tidegate.app.definitions.schema_cost import SchemaInvalid
for number, line in enumerate(sys.stdin):
    document, payload = json.loads(line)
    try:
        Schema.compile(document).check(payload.encode())
    except (SchemaInvalid, SchemaViolation, SchemaWork) as refused:
        print(number, type(refused).__name__, flush=True)
"""
CPU_SECONDS = 30


def doubled(levels: int, **leaf: Any) -> dict[str, Any]:
    """Each level asks the next one twice: 2^levels evaluations of one value."""
    level = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**level, f"a{levels}": leaf}, "$ref": "#/$defs/a0"}


def unevaluated(levels: int) -> dict[str, Any]:
    """Each level asks all levels below it again which properties they have evaluated."""
    schema: dict[str, Any] = {"properties": {"x": {}}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return schema


TWICE_A_LEVEL = {"type": "array", "anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}

ENDLESS = [
    (doubled(60), "1"),
    (doubled(20, properties={"x": {}}) | {"unevaluatedProperties": False}, '{"x":1}'),
    (unevaluated(30), '{"x":1}'),
    (TWICE_A_LEVEL, "[" * 60 + "1" + "]" * 60),
    ({"items": {"anyOf": [{"const": n} for n in range(8_000)]}}, json.dumps([7_999] * 20_000)),
    ({"items": {"enum": [{"a": n} for n in range(9_000)]}}, json.dumps([{"a": 8_999}] * 20_000)),
    ({"items": {"anyOf": [{"const": n} for n in range(800)]}}, json.dumps([-1] * 20_000)),
    ({"uniqueItems": True}, json.dumps([10**30 + n for n in range(20_000)])),
    ({"uniqueItems": True}, "[" + ",".join(f"{n}e-400" for n in range(20_000)) + "]"),
    ({"items": {"multipleOf": 0.01}}, "[" + ",".join(["1e9999"] * 20_000) + "]"),
    ({"items": {"multipleOf": 10**4_000}}, json.dumps([n + 0.5 for n in range(100_000)])),
    ({"required": [10**30 + n for n in range(10_000)]}, "{}"),
    ({"pattern": "[ab]*a[ab]{5000}c"}, '"' + "aababb" * 100_000 + '"'),
]


@rule("topic-6")
@pytest.mark.system
def test_what_could_hold_the_loop_is_refused_before_it_begins() -> None:
    """No message can stop the gateway. A check that does not end cannot be stopped in a thread."""
    lines = "\n".join(json.dumps(check) for check in ENDLESS)
    bounded = f"import resource\nresource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS},) * 2)\n"
    command = [sys.executable, "-c", bounded + CHECKS]
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    refused = [line.split() for line in ended.stdout.splitlines()]
    assert [int(number) for number, _ in refused] == list(range(len(ENDLESS))), ended.stderr
    assert {name for _, name in refused} <= {"SchemaInvalid", "SchemaWork"}
    assert ended.returncode == 0, ended.stderr


REFUSED = [
    (doubled(60), "/$defs/a31/allOf/0"),
    (doubled(14), "/$defs/a4"),
    ({"properties": {"a": {"items": {"anyOf": [{"const": n} for n in range(1_900)]}}}},
     "/properties/a/items"),
    ({"$ref": "#"}, ""),
    ({"properties": {"a": {"not": {"$ref": "#/properties/a"}}}}, "/properties/a"),
    ({"$defs": {"a": {"$id": "https://x.invalid/"}}}, "/$defs/a/$id"),
    ({"enum": list(range(20_001))}, ""),
    ({"properties": {f"p{n}": {} for n in range(2_001)}}, ""),
    ({"multipleOf": 10**400}, ""),
    ({"pattern": "((a{0,100}){0,100}){0,100}"}, "/pattern"),
    ({"pattern": "[]((a{0,100}){0,100}){0,100}]"}, "/pattern"),
    ({"$id": DIALECT}, "/$id"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "pointer"), REFUSED, ids=range(len(REFUSED)))
def test_a_schema_without_a_bound_is_refused_where_it_stands(
    document: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(SchemaInvalid) as refused:
        Schema.compile(document)
    assert refused.value.pointer == pointer


def test_references_to_places_that_are_no_schemas_are_refused() -> None:
    """They would not be weighed."""
    for reference in ("#/x", "#/const", "#nowhere", "other", "https://x.invalid/y"):
        with pytest.raises(SchemaInvalid):
            Schema.compile({"x": {}, "const": {}, "properties": {"a": {"$ref": reference}}})


ORDER = {
    "$id": "https://x.invalid/order",
    "type": "object",
    "required": ["id", "legs"],
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{1,12}$"},
        "side": {"enum": ["buy", "sell"]},
        "legs": {"type": "array", "uniqueItems": True, "items": {"$ref": "order#/$defs/leg"}},
        "tree": {"$ref": "#tree"},
    },
    "$defs": {
        "leg": {
            "oneOf": [
                {"properties": {"kind": {"const": "future"}, "px": {"type": "number"}}},
                {"properties": {"kind": {"const": "option"}, "px": {"minimum": 0}}},
            ],
            "unevaluatedProperties": False,
        },
        "tree": {"$anchor": "tree", "type": "array", "items": {"$ref": "#tree"}},
    },
}


def test_an_ordinary_schema_takes_large_messages() -> None:
    legs = [{"kind": "future", "px": n} for n in range(3_000)]
    payload = json.dumps({"id": "ABC-1", "side": "buy", "legs": legs, "tree": [[], [[]]]})
    assert Schema.compile(ORDER).check(payload.encode()) < WORK_MAX
    flat = {"items": {"properties": {"k": {"type": "integer"}, "v": {"type": "number"}}}}
    payload = json.dumps([{"k": n, "v": n + 0.5} for n in range(15_000)])
    Schema.compile(flat).check(payload.encode())
    Schema.compile({"enum": [f"S{n}" for n in range(19_000)]}).check(b'"S18999"')
    Schema.compile({"items": {"$ref": DIALECT}}).check(b'[{"type":"string"}]')


def test_a_message_that_could_take_too_long_is_refused_with_its_work() -> None:
    schema = Schema.compile({"items": {"anyOf": [{"const": n} for n in range(500)]}})
    assert schema.check(b"[499,499]")
    with pytest.raises(SchemaWork) as refused:
        schema.check(json.dumps([499] * 5_000).encode())
    assert refused.value.work > WORK_MAX


def test_figures_in_texts_are_no_big_numbers() -> None:
    schema = Schema.compile({"items": {"type": "string", "enum": ["x"]}, "uniqueItems": True})
    text = '5e400 12345678901234567890123 \\" 1e999'
    with pytest.raises(SchemaViolation):
        schema.check(f'["{text}",{",".join([f"{chr(34)}{text}{chr(34)}"] * 1_000)}]'.encode())


def test_a_large_message_that_fits_no_branch_is_refused_without_a_place() -> None:
    """The library takes seconds to say why, with a copy for each branch."""
    schema = Schema.compile({"items": {"anyOf": [{"const": n} for n in range(100)]}})
    with pytest.raises(SchemaViolation) as small:
        schema.check(b"[1,-1]")
    assert (small.value.keyword, small.value.pointer) == ("anyOf", "/1")
    with pytest.raises(SchemaViolation) as large:
        schema.check(json.dumps([-1] * 500).encode())
    assert (large.value.keyword, large.value.pointer) == ("a keyword", "")


@pytest.mark.nightly
def test_weighing_is_itself_bounded() -> None:
    """Chains of references, each with all that is below it: quadratic, so refused in time."""

    def level(number: int) -> dict[str, Any]:
        below = {"$ref": f"#/$defs/a{number + 1}"}
        return {"properties": {f"x{number}": below}, "allOf": [below], "items": {"$ref": "#"}}

    chain = {f"a{number}": level(number) for number in range(60)}
    crowd = {f"q{number}": {"$ref": "#"} for number in range(900)}
    for document in (
        {"$defs": {**chain, "a60": {"uniqueItems": True}}, "$ref": "#/$defs/a0"},
        {"properties": {f"p{n}": {"$ref": "#/$defs/d"} for n in range(900)},
         "$defs": {"d": {"properties": crowd}}},
    ):  # fmt: skip
        begun = time.process_time()
        with contextlib.suppress(SchemaInvalid):
            Schema.compile(document)
        assert time.process_time() - begun < 2


# The property: no evaluator, however naive, evaluates more than the bound says.

NAMES = ("a", "b", "c")


def schemas(names: tuple[str, ...]) -> st.SearchStrategy[Any]:
    leaf = st.one_of(
        st.booleans(),
        st.sampled_from([{}, {"type": "integer"}, {"minimum": 1}, {"const": [1, [2]]}]),
        st.sampled_from([{"enum": [1, {"a": 1}]}, {"required": ["a", "b"]}, {"uniqueItems": True}]),
        st.sampled_from(names).map(lambda name: {"$ref": f"#/$defs/{name}"}),
    )

    def inside(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        some = st.lists(inner, min_size=1, max_size=3)
        named = st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3)
        one = ("not", "if", "then", "else", "items", "contains", "additionalProperties",
               "propertyNames", "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
        return st.fixed_dictionaries(
            {},
            optional={
                **dict.fromkeys(one, inner),
                **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), some),
                **dict.fromkeys(("properties", "dependentSchemas", "patternProperties"), named),
            },
        )

    return st.recursive(leaf, inside, max_leaves=8)


DOCUMENTS = st.builds(
    lambda root, defs: {"allOf": [root], "$defs": dict(zip(NAMES, defs, strict=True))},
    schemas(NAMES),
    st.tuples(*(schemas(NAMES) for _ in NAMES)),
)
INSTANCES = st.recursive(
    st.one_of(st.integers(-2, 2), st.sampled_from(["", "a", 'x,{"'])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from((*NAMES, "d")), inner)
    ),
    max_leaves=12,
)


def evaluations(document: Any, schema: Any, value: Any) -> int:
    """Count what an evaluator does that stops nowhere, not even at what fails."""
    if isinstance(schema, bool):
        return 1
    count = 1 + len(schema.get("enum", ()))
    for inner, it in (*at_the_same_value(document, schema, value), *at_members(schema, value)):
        if inner is not None:  # the keyword is there
            count += evaluations(document, inner, it)
    if isinstance(value, dict):
        count += len(schema.get("required", ()))
        count += len(schema.get("patternProperties", ())) * len(value)
    if isinstance(value, list) and schema.get("uniqueItems"):
        count += sum(map(values, value))
    return count


def at_the_same_value(document: Any, schema: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    if "$ref" in schema:
        yield document["$defs"][schema["$ref"].rpartition("/")[2]], value
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from ((inner, value) for inner in schema.get(keyword, ()))
    for keyword in ("not", "if", "then", "else"):
        yield schema.get(keyword), value
    yield from ((inner, value) for inner in schema.get("dependentSchemas", {}).values())


def at_members(schema: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        known = schema.get("properties", {})
        patterns = schema.get("patternProperties", {}).items()
        for name, member in value.items():
            yield schema.get("propertyNames"), name
            yield known.get(name, schema.get("additionalProperties")), member
            yield schema.get("unevaluatedProperties"), member
            yield from ((inner, member) for pattern, inner in patterns if pattern in name)
    if isinstance(value, list):
        prefix = schema.get("prefixItems", [])
        for number, member in enumerate(value):
            yield prefix[number] if number < len(prefix) else schema.get("items"), member
            yield schema.get("contains"), member
            yield schema.get("unevaluatedItems"), member


def values(value: Any) -> int:
    """How many values a value is."""
    members = value.values() if isinstance(value, dict) else value
    return 1 + (sum(map(values, members)) if isinstance(value, dict | list) else 0)


@given(DOCUMENTS, INSTANCES)
@examples(20)
def test_no_evaluator_does_more_than_the_bound_says(document: Any, value: Any) -> None:
    try:
        cost = cost_of(document)
    except SchemaInvalid:
        return
    payload = json.dumps(value, separators=(",", ":")).encode()
    assert evaluations(document, document, value) <= cost.work(payload)
