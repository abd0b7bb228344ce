"""Targets: JSON and what is written in it: messages, definitions, patches, sessions, envelopes."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec
from jsonschema_rs import Draft202012Validator

from tests.fuzz.languages import (
    DURATIONS,
    FILTERS,
    PATHS,
    a_list,
    a_projection,
    a_select,
    an_order,
    some_options,
)
from tests.fuzz.mutating import BYTES, NUMBERS, mutated
from tests.fuzz.reference import Refused, as_numbers, patched, strict_json
from tests.fuzz.target import Target
from tests.support.servers import edge_settings
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.http.application import create_app
from tidegate.app.http.parameters import texts_of
from tidegate.app.http.problems import body_of, refusal_of
from tidegate.app.http.publish_request import commit_of
from tidegate.app.http.routes.models.sessions import Explaining, Subscribing
from tidegate.app.refusals import CODES
from tidegate.app.streams.documents import Tuning, change_of, opening_of, target_of, tuning_of
from tidegate.app.topics.bodies import read_envelope
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.steps import finished
from tidegate.keys.errors import JsonInvalid, KeysError
from tidegate.keys.jsontext import are_equal, canonical_value, check_json, one_line
from tidegate.keys.lines import LineReader
from tidegate.keys.patch import apply, compose, diff
from tidegate.keys.spec import KeySpec, canonical_key, group_key, record_key

NAMES: Final = ("a", "b", "k", "\\u0061", "", "a b", "\xe9", "__proto__", "a/b", "~", "\\n")
SPACES: Final = ("", "", "", " ", "\t", "\n", "\r\n", "  ")
STRINGS: Final = (
    "", "a", "IBM", "\xe9", "\u2028", "\\u0000", "\\ud83d\\ude00", "\U0001f600", "\\\\", '\\"',
    "\\/", "\\b\\f\\n\\r\\t", "</script>", "data: x", "\\r\\n\\r\\nevent: y", "\x7f", "\\u00e9",
    "\\ud800", "\\udc00\\ud800", "\x01",
)  # fmt: skip
WORDS: Final = ("true", "false", "null")


# JSON


def a_value(random: Random, depth: int = 0) -> str:
    """The text of a value, spelled in odd ways and now and then wrong."""
    gap = random.choice(SPACES)
    kind = random.randrange(10 if depth < 4 else 6)
    if kind < 2:
        return gap + random.choice(NUMBERS if random.random() < 0.3 else NUMBERS[:8])
    if kind < 4:
        return f'{gap}"{random.choice(STRINGS)}"'
    if kind < 6:
        return gap + random.choice(WORDS)
    if kind < 8:
        items = [a_value(random, depth + 1) for _ in range(random.randrange(4))]
        return f"{gap}[" + ",".join(items) + random.choice(SPACES) + "]"
    return gap + an_object(random, depth)


def an_object(random: Random, depth: int = 0) -> str:
    """The text of an object."""
    members = []
    for _ in range(random.randrange(5)):
        gap = random.choice(SPACES)
        name = random.choice(NAMES)
        members.append(f'{gap}"{name}"{gap}:{a_value(random, depth + 1)}')
    return "{" + ",".join(members) + random.choice(SPACES) + "}"


def a_json(random: Random) -> bytes:
    """Bytes that are JSON, or nearly so."""
    depth = random.choice((0, 0, 0, 0, 0, 0, 0, 30, 63, 64, 65))
    opening = random.choice(("[", '{"a":'))
    text = opening * depth + a_value(random) + ("]" if opening == "[" else "}") * depth
    data = text.encode()
    return mutated(random, data, BYTES) if random.random() < 0.6 else data


def strict(data: bytes) -> Any:
    """The value by the reference, as numbers; `Refused` itself where there is none."""
    try:
        return as_numbers(strict_json(data))
    except Refused:
        return Refused


def check_text(data: bytes) -> bool:
    """Both readers take a text, or neither; what is made of it is the same value."""
    expected = strict(data)
    try:
        check_json(data)
    except JsonInvalid as error:
        assert expected is Refused, expected
        assert error.position is None or 0 <= error.position <= len(data)
        return False
    assert expected is not Refused
    line = one_line(data)
    assert b"\n" not in line
    assert b"\r" not in line
    assert strict(line) == expected
    canonical = canonical_value(line).encode()
    assert strict(canonical) == expected, canonical
    assert canonical_value(canonical) == canonical.decode()
    assert are_equal(line, canonical)
    return True


def check_keys(data: bytes) -> bool:
    """A key has one spelling, which is a key of its own spelling."""
    accepted = False
    for read in (canonical_key, group_key):
        try:
            key = read(data)
        except KeysError as error:
            assert error.code in CODES
            continue
        accepted = True
        assert read(key.encode()) == key
        assert strict(key.encode()) is not Refused
    return accepted


# Lines

SPECS: Final = (KeySpec(), KeySpec.of(["/k"]), KeySpec.of(["/a", "/k"]), KeySpec.of(["/a/b"]),
                KeySpec.of(["$.a[0]"]))  # fmt: skip
READERS: Final = tuple((LineReader.of(spec), spec) for spec in SPECS)


def some_lines(random: Random) -> tuple[int, bytes]:
    """A piece of NDJSON, and the number of the key to read it with."""
    lines = []
    for _ in range(random.randrange(6)):
        text = an_object(random, 3) if random.random() < 0.8 else a_value(random)
        key = random.choice(("1", '"x"', "1.0", "null", '"\\u0078"', "true", "[1]", "1e2"))
        if text.startswith("{") and random.random() < 0.8:
            text = f'{{"k":{key},"a":{key}' + (", " if text.strip("{} \t\r\n") else "") + text[1:]
        lines.append(text.replace("\n", " ").encode())
    piece = random.choice((b"\n", b"\n", b"\r\n", b"\n\n")).join(lines)
    return random.randrange(len(SPECS)), (
        mutated(random, piece, BYTES) if random.random() < 0.4 else piece
    )


def check_lines(given: tuple[int, bytes]) -> bool:
    """Lines that are read together are the same as each by itself; else nothing is read."""
    number, piece = given
    reader, spec = READERS[number]
    found = None if reader is None else reader.read(piece, 1_000)
    if found is None:
        return False
    key_of = record_key(spec) if spec else lambda _: ""
    lines = [line for line in piece.split(b"\n") if line]
    assert len(found.payloads) == len(found.keys) == len(lines)
    for line, payload, key in zip(lines, found.payloads, found.keys, strict=True):
        assert len(line) <= 1_000
        check_json(line)
        assert payload == one_line(line)
        assert key == key_of(payload)
    return True


# Merge patches


def two_values(random: Random) -> tuple[bytes, bytes, bytes]:
    """A value and two patches."""
    made = (an_object(random, 1) if random.random() < 0.8 else a_value(random, 2) for _ in range(3))
    return tuple(text.encode() for text in made)  # type: ignore[return-value]  # there are three


def plain(data: bytes) -> Any:
    """The value by the reference, numbers compared as numbers."""
    return as_numbers(strict_json(data))


def check_patches(given: tuple[bytes, bytes, bytes]) -> bool:
    """Patches are made, applied and composed as RFC 7396 has them."""
    if any(strict(each) is Refused for each in given):
        return False
    value, first, second = map(one_line, given)
    once = apply(value, first)
    assert plain(once) == as_numbers(patched(strict_json(value), strict_json(first)))
    both = compose(first, second)
    if both is not None:
        assert plain(apply(value, both)) == plain(apply(once, second)), both
    change = diff(value, once)
    if change is not None:
        assert plain(apply(value, change)) == plain(once), change
        assert (change == b"{}") == are_equal(value, once), change
    return True


# Definitions and requests

_SCHEMAS: Final[tuple[Any, ...]] = (
    {"type": "object"}, {"properties": {"a": {"type": "number"}}}, True, {"$ref": "#"},
            {"pattern": "(a+)+$"}, {"$ref": "http://zzq"}, {"anyOf": [{}, {}]}, 7)  # fmt: skip
FIELDS: Final[dict[str, Callable[[Random], Any]]] = {
    "key": lambda random: random.choices(PATHS, k=random.randint(0, 3)),
    "conflation": lambda random: random.choice(("off", "conflate", "always", "unsubscribe", "zzq")),
    "options": some_options,
    "placement": lambda random: random.choice(("append", "replace", "zzq")),
    "match": lambda random: random.choice((None, "", ["/a"], ["/a", "/b"], "a:b", [1])),
    "merge": lambda random: random.choice(("replace", {"/a": "sum"}, {"/a": "max@b"}, {}, "a:b",
                                           {"/a": "zzq"}, {"/a": "last", "/a/b": "sum"})),
    "type": lambda random: random.choice(("json", "text", "binary", "series", "zzq")),
    "retain": lambda random: random.choice((True, False, None, 1)),
    "values_only": lambda random: random.choice((True, False, None)),
    "priority": lambda random: random.choice(("low", "default", "high", "zzq")),
    "expiration": lambda random: random.choice((*DURATIONS, None, 1000)),
    "history": lambda random: random.choice((None, {}, {"messages": 5}, {"age": "1h"},
                                             {"bytes": "1MiB"}, {"messages": 0}, {"bytes": 7},
                                             {"age": "99999999999999w"}, {"zzq": 1})),
    "schema": lambda random: random.choice((None, *_SCHEMAS)),
    "tidy_on_unsubscribe": lambda random: random.choice((True, False)),
    "source": lambda random: random.choice((None, a_source(random))),
    "description": lambda random: random.choice(("", "x", "\u2028", "z" * 5_000)),
}  # fmt: skip


def a_source(random: Random) -> dict[str, Any]:
    """The source of a derived topic."""
    source: dict[str, Any] = {"topic": random.choice(("t", "zzq", "tidegate.x", ".")),
                              "interval": random.choice(DURATIONS)}  # fmt: skip
    if random.random() < 0.5:
        source["filter"] = random.choice(FILTERS)
    if random.random() < 0.4:
        source["grouping"] = random.choices(PATHS, k=random.randint(0, 2))
        source["projection"] = a_projection(random)[1:-1].split(",")
    if random.random() < 0.3:
        source["engine"] = random.choice(("gateway", "spark", "zzq"))
    return source


def _as_body(random: Random, document: Any) -> bytes:
    """JSON of a document, now and then with something wrong in it."""
    body = msgspec.json.encode(document)
    return mutated(random, body, BYTES) if random.random() < 0.25 else body


def a_definition(random: Random) -> bytes:
    """The definition of a topic."""
    names = random.sample(list(FIELDS), k=random.randint(0, 5))
    return _as_body(random, {name: FIELDS[name](random) for name in names})


_DOCUMENT = create_app(edge_settings()).openapi()
_DECLARED = Draft202012Validator(
    {"$ref": "#/components/schemas/TopicDefinition", "components": _DOCUMENT["components"]}
)


def refusal(error: Exception) -> None:
    """A refusal is a problem with a code, and one that can be sent."""
    problem = refusal_of(error)
    assert problem.code != "internal", error
    assert problem.status < 500
    document = json.loads(body_of(problem))
    assert document["detail"]
    assert "zzq" not in document["detail"].lower(), document
    pointer = document.get("pointer")
    assert pointer is None or pointer.startswith("/"), document


def check_definition(body: bytes) -> bool:
    """A definition that is accepted can be stored and read again, and is as declared."""
    try:
        found = TopicDefinition.parse(body)
        found.check_options(4_096)
    except Exception as error:
        refusal(error)
        return False
    document = found.document()
    stored = msgspec.json.encode(document)
    again = TopicDefinition.parse(stored)
    assert again.document() == document
    assert again.etag("e") == found.etag("e")
    again.check_options(4_096)
    assert again.definition(1_000, 1 << 20) == found.definition(1_000, 1 << 20)
    assert _DECLARED.is_valid(json.loads(stored)), stored
    return True


def a_subscription(random: Random) -> dict[str, Any]:
    """A subscription, as a session asks for it."""
    document: dict[str, Any] = {"topic": random.choice(("t", "px.*", ">", "a.>", "*.b", "a b", ""))}
    for name, make in (
        ("options", some_options), ("filter", lambda _: random.choice(FILTERS)),
        ("order_by", an_order), ("format", lambda _: random.choice(("value", "batch", "zzq", ""))),
        ("command", lambda _: random.choice(("sow", "subscribe", "zzq", ""))),
        ("last_event_id", lambda _: random.choice(("a-1", "a:b", ""))),
        ("bookmarks", lambda _: random.choice(("a=b-1", "a=b-1,a=b-1", "=", "zzq"))),
    ):  # fmt: skip
        if random.random() < 0.25:
            document[name] = make(random)
    return document


def a_request(random: Random) -> bytes:
    """A body of one of the requests about sessions."""
    limits = {"messages": random.choice((1, 0, 10, "1", None, 10**30)),
              "bytes": random.choice((1, "1KiB", "zzq", None, -1)),
              "upper": random.choice((80, 101, 1)), "lower": random.choice((50, 0,
              90))}  # fmt: skip
    some = {name: limits[name] for name in random.sample(list(limits), k=random.randint(0, 3))}
    one = a_subscription(random)
    change = {"options": some_options(random), "paused": random.choice((True, False, None)),
              "conflation": random.choice((*DURATIONS, "auto", None)), "filter": None,
              "order_by": random.choice((None, an_order(random)))}  # fmt: skip
    part = {name: change[name] for name in random.sample(list(change), k=random.randint(0, 2))}
    commit = {"producer": random.choice(("p", "", "a\nb")), "run": random.choice((1, -1, "1")),
              "sequence": random.choice((1, 2**63, None)), "stages": ["s"]}  # fmt: skip
    document = random.choice((
        one, part, commit, {"limits": some}, {"conflated": random.choice((True, None, 1))},
        {"limits": some, "subscriptions": [one, a_subscription(random)]},
        {"subscriptions": [one], "select": a_select(random), "key": a_list(random)},
    ))  # fmt: skip
    return _as_body(random, document)


_MOST = QueueLimits(10_000, 8 << 20)
_NOW = Tuning(_MOST, True)
_READS: tuple[Callable[[bytes], object], ...] = (
    lambda body: finished(opening_of(body, _MOST, 4_096)),
    lambda body: tuning_of(body, _NOW, _MOST),
    lambda body: target_of(body, 4_096),
    lambda body: change_of(body, 4_096),
    lambda body: Subscribing.model_validate(texts_of(body, Subscribing.codes)),
    lambda body: Explaining.model_validate({"topic": "t"} | texts_of(body, Explaining.codes)),
    commit_of,
)


def check_request(body: bytes) -> bool:
    """Every reader of a body takes it or refuses it with a problem."""
    accepted = False
    for read in _READS:
        try:
            read(body)
        except Exception as error:
            refusal(error)
        else:
            accepted = True
            assert strict(body or b"{}") is not Refused
    return accepted


def an_envelope(random: Random) -> bytes:
    """A line of a journal, or something like it."""
    members = {
        "value": a_value(random, 3), "key": random.choice(("null", '["a"]', "[1,true]", '"x"')),
        "reason": random.choice(('"deleted"', '"expired"', '"match"', '"zzq"', "null")),
        "op": random.choice(('"publish"', '"oof"', '"snapshot"', '"delta"', "1")),
        "topic": '"t"', "bookmark": '"a-1"', "timestamp": random.choice(("1", "1.5", "1e400")),
        "zzq": "1",
    }  # fmt: skip
    names = ["value", "key", "reason", "op", "topic", "bookmark", "timestamp"]
    chosen = random.sample(names, k=random.randint(0, 4)) + ["zzq"] * (random.random() < 0.05)
    text = "{" + ",".join(f'"{name}":{members[name]}' for name in chosen) + "}"
    data = text.encode()
    return mutated(random, data, BYTES) if random.random() < 0.4 else data


def check_envelope(data: bytes) -> bool:
    """An envelope is strict JSON, and so is the value that it brings."""
    try:
        found = read_envelope(data)
    except KeysError as error:
        assert error.code in CODES
        return False
    assert strict(data) is not Refused, data
    if found.reason is None:
        assert strict(found.value) == strict(data)["value"]
    else:
        assert found.record_key is not None
    return True


TARGETS: Final = (
    Target("json", a_json, check_text),
    Target("keys", a_json, check_keys),
    Target("lines", some_lines, check_lines),
    Target("patches", two_values, check_patches),
    Target("definitions", a_definition, check_definition),
    Target("bodies", a_request, check_request),
    Target("envelopes", an_envelope, check_envelope),
)
