"""Strict reading of paths, queries, headers and bodies."""

from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message, Scope

from tidegate.app.http.parameters import record_key_text
from tidegate.app.http.requests import (
    content_type,
    header_value,
    preferred,
    query_values,
    read_body,
    require_accept,
    session_id,
    topic_name,
    writable_topic_name,
)
from tidegate.app.names import checked_subscription_name
from tidegate.app.refusals import Refused
from tidegate.app.texts import boolean, checked_characters, integer, one_of

ALLOWED = {"options": "options-invalid", "last_event_id": "bookmark-invalid"}


def asked(path: str = "/", query: bytes = b"", **headers: str | list[str]) -> Scope:
    """The scope of a request; a header with a list is sent several times."""
    fields = [
        (name.replace("_", "-").encode(), value.encode("latin-1"))
        for name, values in headers.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    raw = path.encode("latin-1")
    return {"type": "http", "path": path, "raw_path": raw, "query_string": query, "headers": fields}


def code_of(call: Callable[[], Any]) -> str:
    """The code of the problem that `call` raises."""
    with pytest.raises(Refused) as raised:
        call()
    return raised.value.code


BAD_NAMES = [
    pytest.param("", id="B37-empty"),
    pytest.param("a" * 256, id="B37-256"),
    pytest.param("%20a", id="B37-leading-space"),
    pytest.param("a%20", id="B37-trailing-space"),
    pytest.param("a b", id="B37-space"),
    pytest.param(".", id="B38-dot"),
    pytest.param("..", id="B38-dots"),
    pytest.param("%2e%2e", id="B38-dots-encoded"),
    pytest.param("%2E", id="B38-dot-encoded"),
    pytest.param("a%2Fsow", id="B38-slash-encoded"),
    pytest.param("%252e", id="B38-encoded-twice"),
    pytest.param("a%5Cb", id="B38-backslash"),
    pytest.param("%00", id="B39-nul"),
    pytest.param("a%00", id="B39-nul-at-end"),
    pytest.param("%0d%0aX:%20y", id="B39-line-end"),
    pytest.param("%ff", id="B39-no-utf8"),
    pytest.param("%c0%af", id="B39-overlong"),
    pytest.param("%ED%A0%80", id="B39-surrogate"),
    pytest.param("%", id="B39-bare-percent"),
    pytest.param("%61", id="B39-needless-encoding"),
    pytest.param("*", id="B40-star"),
    pytest.param(">", id="B40-rest"),
    pytest.param("a:b", id="B40-colon"),
    pytest.param("$SYS", id="B40-dollar"),
    pytest.param("_a", id="B40-underscore-first"),
    pytest.param("-a", id="B40-dash-first"),
    pytest.param(".a", id="B40-dot-first"),
    pytest.param("%D0%BE", id="B41-cyrillic"),
    pytest.param("\xe9", id="B41-latin-1"),
    pytest.param("a;b", id="B40-semicolon"),
    pytest.param("a%0a", id="B39-newline-at-end"),
]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("rest", ["", "/messages"])
def test_a_name_that_is_none_is_topic_invalid(name: str, rest: str) -> None:
    scope = asked(f"/v1/topics/{name}{rest}")
    assert code_of(lambda: topic_name(scope)) == "topic-invalid"


@pytest.mark.parametrize("name", ["a", "Z9", "a" * 255, "orders.eu-1_x", "CON", "a.", "0", "a..b"])
def test_a_name_is_taken_as_it_is(name: str) -> None:
    assert topic_name(asked(f"/v1/topics/{name}/sow")) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        ".b",
        "a.",
        "a.b.c",
        "%61",
        "a%00",
        "a" * 65,
        "*",
        "\xe9",
        "a b",
        "$",
        "a/b".replace("/", "%2F"),
    ],
)
def test_an_id_in_the_path_is_as_it_was_given(text: str) -> None:
    session = asked(f"/v1/sessions/{text}/subscriptions/s1")
    assert code_of(lambda: session_id(session)) == "session-unknown"
    assert code_of(lambda: checked_subscription_name(text)) == "subscription-unknown"


def test_a_session_s_id_may_begin_with_its_gateway_s() -> None:
    assert session_id(asked("/v1/sessions/g-1.a_B-9/events")) == "g-1.a_B-9"
    too_long = asked(f"/v1/sessions/{'g' * 33}.a/events")
    assert code_of(lambda: session_id(too_long)) == "session-unknown"
    assert code_of(lambda: checked_subscription_name("g.s1")) == "subscription-unknown"


def test_ids_are_found_in_the_path() -> None:
    scope = asked("/v1/sessions/a_B-9/subscriptions/s12?x=1")
    assert session_id(scope) == "a_B-9"
    assert checked_subscription_name("s12") == "s12"


def test_the_gateways_own_topics_are_read_only() -> None:
    scope = asked("/v1/topics/tidegate.sessions/messages")
    assert topic_name(scope) == "tidegate.sessions"
    assert code_of(lambda: writable_topic_name(scope)) == "topic-read-only"
    assert writable_topic_name(asked("/v1/topics/tidegate/messages")) == "tidegate"
    assert writable_topic_name(asked("/v1/topics/tidegates.a/messages")) == "tidegates.a"


def test_a_record_key_in_the_path_is_decoded_once() -> None:
    path = "/v1/topics/t/sow/%5B%22a%2Fb%252f%22,7%5D"
    assert record_key_text(asked(path)) == '["a/b%2f",7]'
    assert record_key_text(asked("/v1/topics/t/sow/a/b")) == "a/b"
    assert code_of(lambda: record_key_text(asked("/v1/topics/t/sow/%ff"))) == "key-invalid"


def test_query_parameters_are_decoded() -> None:
    scope = asked(query=b"options=conflation%3D1s,+pause&last_event_id=")
    assert query_values(scope, ALLOWED) == {
        "options": "conflation=1s, pause",
        "last_event_id": "",
    }


@pytest.mark.parametrize(
    ("query", "code"),
    [
        pytest.param(b"zzz=1", "options-invalid", id="B20-unknown"),
        pytest.param(b"Options=a", "options-invalid", id="B20-case"),
        pytest.param(b"=a", "options-invalid", id="B20-no-name"),
        pytest.param(b"options", None, id="no-value"),
        pytest.param(b"options=a&options=a", "options-invalid", id="B19-twice"),
        pytest.param(b"last_event_id=a&last_event_id=b", "bookmark-invalid", id="B19-twice-own"),
        pytest.param(b"options=a&%6fptions=a", "options-invalid", id="B19-twice-encoded"),
        pytest.param(b"options=%ff", "options-invalid", id="B39-no-utf8"),
        pytest.param(b"last_event_id=%ED%A0%80", "bookmark-invalid", id="B71-surrogate"),
        pytest.param(b"%ff=1", "options-invalid", id="B39-name"),
        pytest.param(b"&&", None, id="nothing"),
    ],
)
def test_query_parameters_are_known_single_and_text(query: bytes, code: str | None) -> None:
    if code is None:
        query_values(asked(query=query), ALLOWED)
    else:
        assert code_of(lambda: query_values(asked(query=query), ALLOWED)) == code


def test_a_problem_of_a_parameter_does_not_repeat_it() -> None:
    with pytest.raises(Refused) as raised:
        query_values(asked(query=b"secret=1"), ALLOWED)
    assert "secret" not in raised.value.detail


@pytest.mark.parametrize("text", ["0", "7", "10000"])
def test_an_integer_is_plain_digits(text: str) -> None:
    assert integer(text, least=0, most=10_000, code="options-invalid", what="limit") == int(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1_000",
        "5.0",
        "+5",
        " 5",
        "5\n",
        "05",
        "-1",
        "10001",
        "1e3",
        "0x5",
        "\u0665",
        "9" * 5000,
    ],
)
def test_anything_else_is_no_integer(text: str) -> None:
    assert (
        code_of(lambda: integer(text, least=0, most=10_000, code="options-invalid", what="limit"))
        == "options-invalid"
    )


def test_a_boolean_is_true_or_false() -> None:
    assert boolean("true", code="options-invalid", what="delta")
    assert not boolean("false", code="options-invalid", what="delta")


@pytest.mark.parametrize("text", ["", "True", "1", "yes", "on", "true "])
def test_anything_else_is_no_boolean(text: str) -> None:
    assert code_of(lambda: boolean(text, code="options-invalid", what="d")) == "options-invalid"


def test_a_choice_and_a_length() -> None:
    assert one_of("value", ("value", "batch"), code="options-invalid", what="format") == "value"
    assert (
        code_of(lambda: one_of("x", ("value",), code="options-invalid", what="f"))
        == "options-invalid"
    )
    assert checked_characters("abc", 3, "filter-invalid", "filter") == "abc"
    with pytest.raises(Refused) as raised:
        checked_characters("abcd", 3, "filter-invalid", "filter")
    assert (raised.value.code, raised.value.position) == ("filter-invalid", 3)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(["a" * 129], id="B71-long"),
        pytest.param(["a\x00b"], id="B71-nul"),
        pytest.param(["\xe9"], id="B71-latin-1"),
        pytest.param(["a\tb"], id="B71-tab"),
        pytest.param(["a", "a"], id="B72-twice"),
    ],
)
def test_a_header_is_single_printable_and_bounded(values: list[str]) -> None:
    scope = asked(last_event_id=values)
    assert (
        code_of(lambda: header_value(scope, "last-event-id", "bookmark-invalid", 128))
        == "bookmark-invalid"
    )


def test_a_header_may_be_missing() -> None:
    assert header_value(asked(), "last-event-id", "bookmark-invalid") is None
    assert header_value(asked(last_event_id="e-7"), "last-event-id", "bookmark-invalid") == "e-7"


@pytest.mark.parametrize(
    "accept",
    [
        "text/event-stream",
        "*/*",
        "text/*",
        "a/b, text/event-stream;q=0.5",
        "TEXT/Event-Stream",
        None,
    ],
)
def test_accept_takes_a_stream(accept: str | None) -> None:
    require_accept(asked(accept=accept or []), "text/event-stream")


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "text/html",
        "",
        "text/event-stream;q=0",
        "text/event-stream; q=0.00",
        "a",
    ],
    ids=lambda value: f"B75-{value}",
)
def test_accept_leaves_a_stream_out(accept: str) -> None:
    scope = asked(accept=accept)
    assert code_of(lambda: require_accept(scope, "text/event-stream")) == "not-acceptable"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, "a/b"),
        ("*/*", "a/b"),
        ("a/*", "a/b"),
        ("c/d", "c/d"),
        ("*/*, c/d", "c/d"),
        ("a/*, c/*", "a/b"),
        ("c/d, a/b", "a/b"),
        ("a/b;q=0.8, c/d;q=0.9", "c/d"),
        ("a/b;q=0.8, */*;q=0.9", "c/d"),
        ("a/b;q=0, */*", "c/d"),
        ("a/*;q=0, */*", "c/d"),
        ("c/d;level=1;q=0.7, a/b;q=0.700", "a/b"),
        (["a/b;q=0.1", "C/D ; Q=0.2"], "c/d"),
        ("a/b;q=0, c/d;q=0.000", None),
        ("e/f", None),
        ("", None),
    ],
)
def test_the_type_with_the_most_weight_is_preferred(
    accept: str | list[str] | None, wanted: str | None
) -> None:
    """A closer range counts before a wider one; of equal weights so does a named type."""
    scope = asked(accept=[] if accept is None else accept)
    assert preferred(scope, ("a/b", "c/d")) == wanted


@pytest.mark.parametrize(
    "given",
    ["application/json", "Application/JSON", "application/json; charset=utf-8",
     'application/json;charset="UTF-8"'],
)  # fmt: skip
def test_a_content_type_is_taken(given: str) -> None:
    assert content_type(asked(content_type=given), ("application/json",)) == "application/json"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param("text/plain", id="B57-text"),
        pytest.param("application/x-www-form-urlencoded", id="B57-form"),
        pytest.param([], id="B57-missing"),
        pytest.param("", id="B57-empty"),
        pytest.param("application/jsonx", id="B57-longer"),
        pytest.param("application/json;charset=utf-7", id="B57-utf-7"),
        pytest.param("application/json;charset=latin1", id="B52-latin-1"),
        pytest.param(["application/json", "application/json"], id="B57-twice"),
        pytest.param("application/json, text/plain", id="B57-two"),
    ],
)
def test_a_content_type_is_not_taken(given: str | list[str]) -> None:
    scope = asked(content_type=given)
    assert code_of(lambda: content_type(scope, ("application/json",))) == "unsupported-media-type"


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate", "gzip, gzip", "GZIP", ""])
def test_an_encoded_body_is_never_inflated(encoding: str) -> None:
    """B56: whatever it would have become."""
    scope = asked(content_type="application/json", content_encoding=encoding)
    assert code_of(lambda: content_type(scope, ("application/json",))) == "unsupported-encoding"


def body_of(*pieces: bytes, declared: int | None = None) -> tuple[Request, list[bytes]]:
    """A request whose body comes in pieces, and those that were not asked for."""
    left = list(pieces)

    async def receive() -> Message:
        piece = left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(left)}

    headers: dict[str, Any] = {} if declared is None else {"content_length": str(declared)}
    return Request(asked(**headers), receive), left


async def test_a_body_at_the_limit_is_read() -> None:
    request, _ = body_of(b"ab", b"", b"cd", declared=4)
    assert await read_body(request, 4) == b"abcd"


async def test_a_length_may_have_space_around_it() -> None:
    request, _ = body_of(b"abcd")
    request.scope["headers"].append((b"content-length", b" 4\t"))
    assert await read_body(request, 4) == b"abcd"


async def test_the_rest_of_a_body_can_be_refused_piece_by_piece() -> None:
    def refuse() -> None:
        raise Refused("limit-reached", "It is full.")

    request, left = body_of(b"a", b"b", b"c")
    with pytest.raises(Refused, match="It is full"):
        await read_body(request, 4, refuse)
    assert left == [b"c"]
    whole, _ = body_of(b"abc")
    assert await read_body(whole, 4, refuse) == b"abc", "what is here needs no more"


async def test_a_body_above_the_limit_is_refused_before_it_is_read() -> None:
    request, left = body_of(b"abcde", declared=5)
    with pytest.raises(Refused) as raised:
        await read_body(request, 4)
    assert (raised.value.code, raised.value.status) == ("message-too-large", 413)
    assert left


async def test_a_body_of_unknown_length_is_refused_where_it_passes_the_limit() -> None:
    """B55: and no further piece of it is asked for."""
    request, left = body_of(b"abc", b"de", b"f")
    with pytest.raises(Refused) as raised:
        await read_body(request, 4)
    assert raised.value.code == "message-too-large"
    assert left == [b"f"]
