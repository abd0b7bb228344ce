"""Hostile requests for every operation, made from its description, and the answers they must get.

The rows B… are those of the catalogue of bad input. Each case names all codes that may refuse it:
one, but where two layers may be the first to see the fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from jsonschema_rs import Draft202012Validator

from tests.hostile.case import Hostile, hostile
from tests.hostile.headers import headers
from tests.hostile.operations import (
    EMPTY_BODIES,
    PATCH,
    REMOVAL,
    TOPIC,
    Operation,
    document,
)

TARGET_BYTES: Final = 9 << 10
DOCUMENT_BYTES: Final = (64 << 10) + 1
TOO_LARGE: Final = {TOPIC: (256 << 10) + 1, TOPIC + "/commits": (4 << 20) + 1}
"""Sizes of bodies that are refused, where that is another one."""


# Paths

RAW: Final = "\xc3\xa9"
NAMES: Final = {
    "B37 empty": "",
    "B37 long": "z" * 256,
    "B37 space": "%20zzq",
    "B37 a space behind": "zzq%20",
    "B38 encoded dots": "%2e%2e",
    "B38 encoded slash": "a%2Fzzq",
    "B38 twice encoded": "%252e",
    "B38 dot": ".",
    "B38 dots": "..",
    "B39 NUL": "%00",
    "B39 CRLF": "%0d%0aX:zzq",
    "B39 no UTF-8": "%ff",
    "B39 overlong": "%c0%af",
    "B39 surrogate": "%ED%A0%80",
    "B39 no percent code": "%zz",
    "B39 percent alone": "a%",
    "B40 colon": "a:zzq",
    "B40 braces": "%7Bslot%7D",
    "B40 dollar": "$SYS",
    "B40 underscore": "__zzq__",
    "B41 e-acute": "%C3%A9",
    "B41 raw bytes": RAW,
    "B41 Cyrillic": "%D0%BErders",
    "B46 backslash": "..%5czzq",
    "semicolon": "keyed;zzq=1",
    "quote": "'%22zzq",
}
MAKING: Final = {("PUT", TOPIC), ("POST", TOPIC + "/messages")}
"""Operations that make a topic which is not there."""
WILD: Final = {"B40 star": "*", "B40 rest": "%3E", "B40 part": "zzq*"}
KEYS: Final = {
    "empty": "",
    "a word": "zzq",
    "an object": quote('{"zzq":1}'),
    "an object inside": quote('[{"zzq":1}]'),
    "not closed": quote('["zzq"'),
    "a surrogate": quote(r'["\ud800"]'),
    "no UTF-8": "%ff",
    "overlong": "%c0%af",
    "beyond 64 bits": quote("[18446744073709551616]"),
    "NaN": quote("[NaN]"),
    "deep": quote("[" * 65 + "]" * 65),
}


def paths(operation: Operation) -> Iterator[Hostile]:
    """Hostile steps of the path, one at a time."""
    for step in operation.steps:
        for name, text in _steps(operation, step):
            raw = operation.request(target=operation.target(**{step: text}))
            yield hostile(f"{step} {name}", raw, *_step_codes(step, text))
    yield hostile("a slash behind", operation.request(target=operation.target() + "/"),
                  "not-found", "key-invalid", "topic-invalid", "record-unknown",
                  "session-unknown", "method-not-allowed", "subscription-unknown")  # fmt: skip
    if not operation.steps:
        broken = operation.path.replace("/", "/%2e/", 1)
        yield hostile("B38 an encoded dot", operation.request(target=broken), "not-found")


def _steps(operation: Operation, step: str) -> Iterator[tuple[str, str]]:
    if step == "record_key":
        yield from KEYS.items()
        yield "of nobody", quote('["zzq"]')
        return
    yield from NAMES.items()
    if not (step == "topic" and operation.path.endswith("/subscribe")):
        yield from WILD.items()
    if step == "topic" and operation.place not in MAKING:
        yield "B42 unknown", "zzq"
    # A removal asks for other rights, which the gateway's own topics are not granted with.
    is_change = operation.method in ("PUT", "PATCH", "DELETE") and operation.place != REMOVAL
    if step == "topic" and is_change:
        yield "B40 reserved", "tidegate.zzq"


def _step_codes(step: str, text: str) -> tuple[str, ...]:
    if text == RAW:  # the parser takes ASCII alone
        return ("message-invalid",)
    if step == "record_key":
        return ("record-unknown",) if text == quote('["zzq"]') else ("key-invalid",)
    if step == "topic":
        if text == "zzq":  # a removal must first say what is to be removed
            return "topic-unknown", "options-invalid"
        if text == "tidegate.zzq":
            return ("topic-read-only",)
        return ("topic-invalid",)
    # A percent sign, or another number of steps, leads to no route at all.
    return f"{'session' if step == 'session' else 'subscription'}-unknown", "not-found"


# Queries

PARAMETER_CODES: Final = {
    "filter": "filter-invalid",
    "from": "bookmark-invalid",
    "offset": "bookmark-invalid",
    "last_event_id": "bookmark-invalid",
    "bookmarks": "bookmark-invalid",
    "topic": "topic-invalid",
    "key": "key-invalid",
}
"""The code of a parameter's refusal; options-invalid for all others."""
SOUND: Final = {"filter": "TRUE", "key": "%5B%22a%22%5D", "from": "epoch", "topic": "keyed"}
BROKEN: Final = {
    "no UTF-8": "%ff",
    "overlong": "%c0%af",
    "surrogate": "%ED%A0%80",
    "cut off": "%e2%82",
}
WRONG: Final = {
    "integer": ["", "zzq", "-1", "0", "+1", "1_0", "1.0", "1e3", "%D9%A2", "%EF%BC%92", "9" * 30,
                "0x10", "%2001", "NaN"],
    "boolean": ["", "yes", "1", "True", "zzq"],
    "enum": ["", "zzq", "value,batch", "%00", "VALUE"],
    "text": ["%00", "z" * 5_000],
}  # fmt: skip
HUGE: Final = "z" * 5_000
OTHER_CODES: Final = {
    ("list_topics", "after"): "topic-invalid",
    ("trace", "topic"): "topic-unknown",
}
"""Codes of one operation's parameter, beside the usual one."""
AT_PROVIDER: Final = {"/v1/login/start", "/v1/login/callback"}
"""Paths of the login at an identity provider: a gateway without one does not have them."""
PROBES: Final = {"/healthz", "/readyz", "/metrics"}
"""Paths that take any query: probes and scrapers add what they like, and it has no effect."""
LAX: Final = {"prefix", "after"}
"""Parameters that take any text: they only say where a list begins."""


def queries(operation: Operation) -> Iterator[Hostile]:
    """Unknown, repeated and malformed parameters."""
    if operation.path in PROBES:
        return
    unknown = {"options-invalid"}
    for name, query in (
        ("B20 unknown", "zzq=1"), ("B20 no value", "zzq"), ("B20 no name", "=zzq"),
        ("B20 a name without UTF-8", "%ff=1"), ("B20 NUL", "%00=zzq"),
        ("B20 __proto__", "__proto__=1"),
    ):  # fmt: skip
        yield _asked(operation, name, query, unknown)
    for name, schema in operation.queries.items():
        code = PARAMETER_CODES.get(name, "options-invalid")
        codes = {code, OTHER_CODES.get((operation.name, name), code)}
        value = SOUND.get(name, "")
        yield _asked(operation, f"B19 {name} twice", f"{name}={value}&{name}={value}", codes)
        yield _asked(operation, f"B20 {name} in capitals", f"{name.upper()}={value}", unknown)
        for fault, text in BROKEN.items():
            yield _asked(operation, f"{name} {fault}", f"{name}={text}", codes)
        if name not in LAX:
            for number, text in enumerate(WRONG[_kind(schema)]):
                yield _asked(operation, f"{name} wrong {number}", f"{name}={text}", codes)
    target = f"{operation.target()}?{'z' * TARGET_BYTES}"
    yield hostile("B80 a long target", operation.request(target=target), "uri-too-long")


def _asked(operation: Operation, name: str, query: str, codes: set[str]) -> Hostile:
    if operation.path in AT_PROVIDER:
        codes = {"not-found"}
    raw = operation.request(target=f"{operation.target()}?{query}")
    return hostile(name, raw, *codes)


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "enum"
    kind = str(schema.get("type", "text"))
    return kind if kind in WRONG else "text"


# Bodies

TEXTS: Final = {
    "B47 empty": b"",
    "B47 space": b" \n",
    "B48 behind the end": b"{} zzq",
    "B48 two documents": b"{}{}",
    "B48 a comma": b'{"zzq":1,}',
    "B48 a comment": b"{}/*zzq*/",
    "B48 quotes": b"{'zzq':1}",
    "B48 no quotes": b"{zzq:1}",
    "B48 not closed": b'{"zzq":',
    "B48 Python": b"{'a':None}",
    "B49 NaN": b'{"zzq":NaN}',
    "B49 Infinity": b'{"zzq":-Infinity}',
    "B51 a lone surrogate": b'{"zzq":"\\ud800"}',
    "B51 the wrong order": b'{"zzq":"\\udc00\\ud800"}',
    "B51 a surrogate as a name": b'{"\\ud800":1}',
    "B51 raw": b'{"zzq":"\xed\xa0\x80"}',
    "B52 no UTF-8": b'{"zzq":"\xff"}',
    "B52 overlong": b'{"zzq":"\xc0\xaf"}',
    "B52 BOM": b"\xef\xbb\xbf{}",
    "B52 UTF-16": "{}".encode("utf-16"),
    "B52 UTF-32": "{}".encode("utf-32"),
    "B53 deep": b'{"zzq":' * 65 + b"1" + b"}" * 65,
    "B53 open": b"[" * 1_500,
    "B53 open objects": b'{"a":' * 400,
    "B54 a leading zero": b'{"zzq":01}',
    "B54 a plus": b'{"zzq":+1}',
    "B54 a point": b'{"zzq":1.}',
    "B54 hexadecimal": b'{"zzq":0x1}',
    "B58 control": b'{"zzq":"\x01"}',
    "B58 a bad escape": b'{"zzq":"\\x"}',
    "a cut-off escape": b'{"zzq":"\\u12',
    "NUL": b"{}\0",
    "form": b"zzq=1&b=2",
    "gzip": b"\x1f\x8b\x08\x00zzq",
}
VALUES: Final = {"null": b"null", "array": b"[]", "text": b'"zzq"', "number": b"1", "true": b"true"}
DOCUMENT_CODES: Final = {
    ("PUT", TOPIC): "topic-invalid",
    ("PATCH", TOPIC): "topic-invalid",
    ("POST", TOPIC + "/messages"): "message-invalid",
    ("POST", TOPIC + "/commits"): "message-invalid",
    ("POST", "/v1/login"): "message-invalid",
}
FIELD_CODES: Final = {
    "key": "key-invalid", "match": "key-invalid", "conflation": "policy-invalid",
    "options": "options-invalid", "filter": "filter-invalid", "bookmarks": "bookmark-invalid",
    "last_event_id": "bookmark-invalid", "topic": "topic-invalid", "merge": "topic-invalid",
}  # fmt: skip
MEMBERS: Final = [
    "null", "true", "7", "-1", "1.5", "1e400", '"zzq"', '""', "[]", "{}", "[null]", "[[[]]]",
    f'"{HUGE}"', '{"zzq":1}', '["zzq","zzq"]', "18446744073709551616", '"\\u0000"',
    '"\\ud83d\\ude00"',
]  # fmt: skip
"""Values of a field, of which its schema says which ones are wrong."""
READ_AS_QUERY: Final = ("/subscribe", "/explain", "/subscriptions")
"""Ends of the paths whose texts are those of a subscription."""


def bodies(operation: Operation) -> Iterator[Hostile]:
    """Bodies that are no JSON, not what is wanted, or too large."""
    if operation.body is None:
        return
    code = DOCUMENT_CODES.get(operation.place, "options-invalid")
    is_publish = operation.path.endswith("/messages")
    for name, body in TEXTS.items():
        if name == "B47 empty" and operation.place in EMPTY_BODIES:
            continue
        found = ("key-missing", code) if is_publish else (code,)
        yield hostile(name, operation.request(body=body), *found)
    for name, body in VALUES.items():
        found = ("key-missing",) if is_publish else (code,)
        yield hostile(f"B47 {name}", operation.request(body=body), *found)
    if is_publish:
        yield from _messages(operation)
        return
    # The length alone is enough: what it announces need not be sent.
    size = f"Content-Length: {TOO_LARGE.get(operation.path, DOCUMENT_BYTES)}".encode()
    raw = operation.request(body=b"").replace(b"Content-Length: 0", size)
    yield hostile("B55 too large", raw, "message-too-large")
    unknown = json.dumps({"zzq": 1}).encode()
    yield hostile("B62 an unknown field", operation.request(body=unknown), code, pointer="/zzq")
    proto = b'{"__proto__":{"zzq":1}}'
    yield hostile("B61 __proto__", operation.request(body=proto), code, pointer="/__proto__")
    yield from _members(operation, code)


def _members(operation: Operation, code: str) -> Iterator[Hostile]:
    """Each field of the body with each value that its schema refuses."""
    sound = json.loads(operation.body or b"{}")
    for name, is_valid in _fields(operation):
        for text in MEMBERS:
            # A number beyond a float is no value of Python, and none of any schema.
            if text != "1e400" and is_valid(json.loads(text)):
                continue
            others = {key: value for key, value in sound.items() if key != name}
            members = [f'"{key}":{json.dumps(value)}' for key, value in others.items()]
            body = "{" + ",".join([*members, f'"{name}":{text}']) + "}"
            codes = {code, FIELD_CODES.get(name, code)}
            # Texts of a subscription are read as those of a query: a position, no pointer.
            is_text = text.startswith('"') and operation.path.endswith(READ_AS_QUERY)
            pointer = None if is_text or text == "1e400" else f"/{name}"
            yield Hostile(
                f"B63 {name} {text[:20]}",
                operation.request(body=body.encode()),
                frozenset(codes),
                pointer,
            )


def _fields(operation: Operation) -> Iterator[tuple[str, Callable[[Any], bool]]]:
    components = document()["components"]
    methods = document()["paths"][operation.path][operation.method.lower()]
    schema = methods["requestBody"]["content"][operation.media_types[0]]["schema"]
    found = components["schemas"][schema["$ref"].rpartition("/")[2]]
    for name, each in found["properties"].items():
        yield name, Draft202012Validator({**each, "components": components}).is_valid


def _messages(operation: Operation) -> Iterator[Hostile]:
    """Messages that are JSON, and refused all the same."""
    for name, text, code in (
        ("B54 beyond 64 bits", '{"k":18446744073709551616}', "key-invalid"),
        ("B54 below 64 bits", '{"k":-9223372036854775809}', "key-invalid"),
        ("B54 5,000 digits", '{"k":' + "9" * 1_500 + "}", "message-invalid"),
        ("B54 an exponent", '{"k":1,"v":1e400}', "message-invalid"),
        ("B59 missing", '{"zzq":1}', "key-missing"),
        ("B59 null", '{"k":null}', "key-invalid"),
        ("B59 an object", '{"k":{"zzq":1}}', "key-invalid"),
        ("B59 an array", '{"k":["zzq"]}', "key-invalid"),
        ("B50 the last of two counts", '{"k":1,"k":null}', "key-invalid"),
        ("B67 a large message", '{"k":"' + "z" * 3_000 + '"}', "message-too-large"),
        ("B55 a large request", '{"k":1}' + " " * 20_000, "message-too-large"),
    ):
        yield hostile(name, operation.request(body=text.encode()), code)
    lines = b'{"k":1}\n' * 3 + b"zzq\n" + b'{"k":2}\n'
    raw = operation.request(body=lines, media_type="application/x-ndjson")
    yield hostile("B64 one bad line", raw, "message-invalid")
    raw = operation.request(body=b'{"k":1}\n' * 101, media_type="application/x-ndjson")
    yield hostile("B64 too many lines", raw, "message-too-large")
    raw = operation.request(body=b"[1]", media_type=PATCH)
    yield hostile("B61 a patch that is none", raw, "key-missing", "message-invalid")


# Methods


def methods(operation: Operation) -> Iterator[Hostile]:
    """Methods that the path does not have, and what is no method."""
    known = {name.upper() for name in document()["paths"][operation.path]}
    for method in ("GET", "PUT", "POST", "PATCH", "DELETE", "TRACE", "OPTIONS", "PROPFIND"):
        if method not in known:
            raw = operation.request(method=method, body=operation.body)
            yield hostile(f"B76 {method}", raw, "method-not-allowed")
    for method in ("ZZQ", "get", "G ET", "CONNECT", ""):
        yield hostile(f"B76 {method!r}", operation.request(method=method),
                      "message-invalid", "method-not-allowed", "host-not-allowed")  # fmt: skip


KINDS: Final[Mapping[str, Callable[[Operation], Iterator[Hostile]]]] = {
    "path": paths,
    "query": queries,
    "body": bodies,
    "header": headers,
    "method": methods,
}
OPEN: Final = {"/healthz", "/readyz", "/v1/login", *AT_PROVIDER}
"""Paths that ask for no token, with one operation or more."""
