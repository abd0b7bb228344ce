"""Checks at start that uvicorn has the internals that we extend.

`tidegate.app.http.protocol` and `tidegate.app.http.server` extend classes that uvicorn does not
promise to keep. A version without them is refused at start; otherwise connections would silently
lose their time-outs.
"""

from types import FunctionType

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import Server, ServerState

UVICORN_TESTED = "0.54"

# Names that our code calls or overrides.
METHODS: dict[type, tuple[str, ...]] = {
    HttpToolsProtocol: (
        "connection_made", "connection_lost", "data_received", "on_message_begin", "on_url",
        "on_header", "on_headers_complete", "on_body", "on_message_complete",
        "on_response_complete", "shutdown", "_start_asgi_task", "_unset_keepalive_if_required",
    ),
    Server: ("startup", "main_loop", "on_tick", "shutdown", "capture_signals", "serve"),
}  # fmt: skip
# Names that our code reads or sets on instances; their constructors mention them.
ATTRIBUTES: dict[type, tuple[str, ...]] = {
    HttpToolsProtocol: (
        "parser", "transport", "flow", "cycle", "pipeline", "url", "headers", "scope", "client",
    ),
    RequestResponseCycle: (
        "body", "chunked_encoding", "disconnected", "expected_content_length", "keep_alive",
        "message_event", "more_body", "response_started", "response_complete",
        "waiting_for_100_continue",
    ),
    Server: ("server_state", "started", "should_exit", "force_exit"),
    ServerState: ("connections", "default_headers", "tasks"),
}  # fmt: skip


class UvicornUnknown(RuntimeError):
    """The installed uvicorn lacks internals that we extend; `str()` is one readable sentence."""


def missing_parts() -> list[str]:
    """Return the names that we build on and the installed uvicorn does not have, sorted."""
    missing = [
        f"{owner.__name__}.{name}"
        for owner, names in METHODS.items()
        for name in names
        if not isinstance(vars(owner).get(name), FunctionType)
    ]
    for owner, names in ATTRIBUTES.items():
        mentioned = set(vars(owner)["__init__"].__code__.co_names)
        mentioned |= {name for base in owner.__mro__ for name in vars(base)}
        # Attributes that a request sets are mentioned where it begins.
        begins = vars(owner).get("on_message_begin")
        mentioned |= set(begins.__code__.co_names) if begins else set()
        missing += [f"{owner.__name__}.{name}" for name in names if name not in mentioned]
    return sorted(missing)


def require_known_uvicorn() -> None:
    """Check the installed uvicorn.

    Raises:
        UvicornUnknown: naming its version, the one we tested, and what is missing.
    """
    missing = missing_parts()
    if missing:
        raise UvicornUnknown(
            f"uvicorn {uvicorn.__version__} cannot be used, {UVICORN_TESTED} can: "
            f"it has no {', '.join(missing)}."
        )


def new_parser(protocol: HttpToolsProtocol) -> httptools.HttpRequestParser:
    """Return a parser of requests as uvicorn makes it."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
