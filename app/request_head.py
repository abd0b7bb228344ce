"""What the header of a request must be as a whole, before anybody reads it."""

from collections.abc import Sequence
from typing import Final

from app.problems import Problem

Fields = Sequence[tuple[bytes, bytes]]

UPGRADE_FIELDS: Final = frozenset({b"connection", b"upgrade", b"http2-settings"})


def head_problem(version: str, target: bytes, fields: Fields) -> Problem | None:
    """What is wrong with a request's header, if anything; names of `fields` are lower-case."""
    names = [name for name, _ in fields]
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if version not in {"1.0", "1.1"}:
        return Problem("message-invalid", "The gateway speaks HTTP/1.1.")
    if names.count(b"host") != 1:
        return Problem("host-not-allowed", "A request has one Host header.", status=400)
    if codings not in ([], [b"chunked"]) or (codings and b"content-length" in names):
        return Problem("message-invalid", "A body has a length or is chunked, nothing else.")
    if not target.startswith(b"/"):
        return _absolute_target_problem(target, fields)
    return None


def without_upgrade(method: bytes, target: bytes, version: str, fields: Fields) -> bytes:
    """The header as bytes, without what asks for another protocol."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    lines += [b"%b: %b" % field for field in fields if field[0] not in UPGRADE_FIELDS]
    if any(name == b"connection" and b"close" in value.lower() for name, value in fields):
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"", b""])


def _absolute_target_problem(target: bytes, fields: Fields) -> Problem | None:
    """Proxies write the whole URL; it may not name another host than the Host header."""
    scheme, _, rest = target.partition(b"://")
    host = next(value for name, value in fields if name == b"host")
    if scheme.lower() not in {b"http", b"https"}:
        return Problem("message-invalid", "The request's target is no path.")
    if rest.partition(b"/")[0].lower() != host.lower():
        return Problem("host-not-allowed", "The target names another host.", status=400)
    return None
