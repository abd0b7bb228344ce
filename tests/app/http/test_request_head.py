"""What only the whole header of a request shows."""

import pytest

from tidegate.app.http.wire import Fields, head_problem, without_upgrade

HOST = (b"host", b"localhost:1")


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
    assert head_problem("1.1", target, fields) is None
    old = head_problem("1.0", target, fields)
    # Codings came with HTTP/1.1.
    assert (old is None) == all(name != b"transfer-encoding" for name, _ in fields)


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
    problem = head_problem(version, target, fields)
    assert problem is not None
    assert (problem.code, problem.status) == (code, 400)


def test_what_asks_for_another_protocol_is_left_out() -> None:
    upgrade = [(b"upgrade", b"h2c"), (b"connection", b"Upgrade, close"), (b"http2-settings", b"x")]
    plain = without_upgrade(b"POST", b"/a", "1.1", [HOST, *upgrade])
    assert plain == b"POST /a HTTP/1.1\r\nhost: localhost:1\r\nconnection: close\r\n\r\n"
    assert b"close" not in without_upgrade(b"GET", b"/", "1.1", [HOST, *upgrade[:1]])
