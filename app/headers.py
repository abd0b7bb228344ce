"""What every request must carry and every answer carries, whatever route it meets.

Pure ASGI: a stream's pieces pass through untouched and at once.
"""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.origins import check_origin
from app.problems import Problem
from app.query import TOPICS_PATH, raw_path, topic_name
from app.topic_pattern import topic_or_pattern

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
API_POLICY = b"default-src 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class SecurityHeaders:
    """Adds the protective headers that a route did not set itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app with a `send` that completes the answer's header."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": _completed(message.get("headers", []))}
            await send(message)

        await self.app(scope, receive, guarded_send)


class RequestChecks:
    """Refuses a foreign Host, other sites' writes and paths with tricks before any route."""

    def __init__(
        self,
        app: ASGIApp,
        is_host_allowed: Callable[[str], bool],
        allowed_origins: tuple[str, ...],
    ) -> None:
        self.app = app
        self.is_host_allowed = is_host_allowed
        self.allowed_origins = frozenset(allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app for a request that may be routed.

        Raises:
            Problem: host-not-allowed, origin-not-allowed, topic-invalid or not-found.
        """
        if scope["type"] == "http":
            self._check_host(scope)
            check_origin(scope, self.allowed_origins)
            check_path(scope)
        await self.app(scope, receive, send)

    def _check_host(self, scope: Scope) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            raise Problem("host-not-allowed", "A request has one Host header.", status=400)
        if not self.is_host_allowed(hosts[0].decode("latin-1")):
            raise Problem("host-not-allowed", "The gateway does not answer to this host name.")


def check_path(scope: Scope) -> None:
    """Refuse what decoding would send to another route than the one that was written.

    Raises:
        Problem: topic-invalid for a name that is none, not-found for other encoded paths.
    """
    path = raw_path(scope)
    if path.startswith(TOPICS_PATH):
        rest = path.removeprefix(TOPICS_PATH).split(b"/")[1:]
        if rest == [b"subscribe"]:
            topic_or_pattern(scope)
        else:
            topic_name(scope)
        # Only a record's key is text of any kind.
        if b"%" in b"/".join(rest) and rest[0] != b"sow":
            raise Problem("not-found", "There is nothing under this path.")
    elif b"%" in path:
        raise Problem("not-found", "There is nothing under this path.")


def host_rule(allowed: tuple[str, ...]) -> Callable[[str], bool]:
    """The rule for a Host header: loopback names and `allowed`, with any port or none."""
    names = LOOPBACK_NAMES | set(allowed) | {f"[{name}]" for name in allowed if ":" in name}

    def is_host_allowed(host: str) -> bool:
        name, colon, port = host.lower().rpartition(":")
        if not colon or host.endswith("]"):  # no port; the colons are inside the brackets
            return host.lower() in names
        return name in names and port.isascii() and port.isdecimal()

    return is_host_allowed


def _completed(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    present = {name.lower() for name, _ in headers}
    media_type = next((value for name, value in headers if name.lower() == b"content-type"), b"")
    policy = PAGE_POLICY if media_type.startswith(b"text/html") else API_POLICY
    missing = [pair for pair in SECURITY_HEADERS if pair[0] not in present]
    if b"content-security-policy" not in present:
        missing.append((b"content-security-policy", policy))
    return [*headers, *missing]
