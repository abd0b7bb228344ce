"""What only the whole header of a request shows."""

import pytest

from tidegate.app.http.wire import Fields, check_head, check_progress, without_upgrade
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings

HOST = (b"host", b"localhost:1")
SETTINGS = Settings(header_bytes_max=1_024, uri_bytes_max=100)


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        (b"/", [HOST]),
        (b"/", [HOST, (b"transfer-encoding", b"Chunked")]),
        (b"/", [HOST, (b"content-length", b"3")]),
        (b"HTTP://LOCALHOST:1/path", [HOST]),
    ],
)
def test_a_header_that_is_right(target: bytes, fields: Fields) -> None:
    check_head("1.1", target, fields, SETTINGS)
    # Codings came with HTTP/1.1.
    if any(name == b"transfer-encoding" for name, _ in fields):
        with pytest.raises(Refused):
            check_head("1.0", target, fields, SETTINGS)
    else:
        check_head("1.0", target, fields, SETTINGS)


@pytest.mark.parametrize(
    ("version", "target", "fields", "code"),
    [
        ("2.0", b"/", [HOST], "message-invalid"),
        ("1.1", b"/", [], "host-not-allowed"),
        ("1.1", b"/", [HOST, HOST], "host-not-allowed"),
        ("1.1", b"/", [HOST, (b"transfer-encoding", b"gzip, chunked")], "message-invalid"),
        ("1.1", b"/", [HOST, *[(b"transfer-encoding", b"chunked")] * 2], "message-invalid"),
        (
            "1.1", b"/",
            [HOST, (b"transfer-encoding", b"chunked"), (b"content-length", b"3")],
            "message-invalid",
        ),
        ("1.1", b"*", [HOST], "message-invalid"),
        ("1.1", b"ftp://localhost:1/", [HOST], "message-invalid"),
        ("1.1", b"http://evil.example/", [HOST], "host-not-allowed"),
    ],
)  # fmt: skip
def test_a_header_that_is_not(version: str, target: bytes, fields: Fields, code: str) -> None:
    with pytest.raises(Refused) as refused:
        check_head(version, target, fields, SETTINGS)
    assert (refused.value.code, refused.value.status) == (code, 400)


@pytest.mark.parametrize(
    ("target", "fields", "code"),
    [
        (b"/" + b"a" * 100, [HOST], "uri-too-long"),
        (b"/", [HOST, (b"x", b"y" * 1_024)], "headers-too-large"),
    ],
)
def test_a_header_that_is_too_large(target: bytes, fields: Fields, code: str) -> None:
    with pytest.raises(Refused, match=code):
        check_head("1.1", target, fields, SETTINGS)


def test_a_request_that_grows_without_an_end() -> None:
    most = 1_024 + 100 + 64
    check_progress(b"/" * 100, most, SETTINGS)
    with pytest.raises(Refused, match="uri-too-long"):
        check_progress(b"/" * 101, most, SETTINGS)
    with pytest.raises(Refused, match="headers-too-large"):
        check_progress(b"/", most + 1, SETTINGS)


def test_what_asks_for_another_protocol_is_left_out() -> None:
    upgrade = [(b"upgrade", b"h2c"), (b"connection", b"Upgrade, close"), (b"http2-settings", b"x")]
    plain = without_upgrade(b"POST", b"/a", "1.1", [HOST, *upgrade])
    assert plain == b"POST /a HTTP/1.1\r\nhost: localhost:1\r\nconnection: close\r\n\r\n"
    assert b"close" not in without_upgrade(b"GET", b"/", "1.1", [HOST, *upgrade[:1]])
