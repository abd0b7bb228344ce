"""Puts the outer layers around the application, in the one order that works."""

from fastapi import FastAPI

from app.access_log import AccessLog
from app.headers import RequestChecks, SecurityHeaders, host_rule
from app.methods import HeadAsGet
from app.problems import install
from app.settings import Settings

WILDCARDS = frozenset({"0.0.0.0", "::"})


def fit(app: FastAPI, settings: Settings) -> None:
    """Call it last of all, after every route and other middleware.

    From the outside in: a line for each request if it is asked for, security headers on every
    answer, problems for whatever is raised, checks of Host, origin and path, HEAD as GET, then
    what the application brought.
    """
    app.add_middleware(HeadAsGet)
    app.add_middleware(
        RequestChecks,
        is_host_allowed=host_rule(_host_names(settings)),
        allowed_origins=settings.allowed_origins,
    )
    install(app)
    app.add_middleware(SecurityHeaders)
    if settings.log_requests:
        app.add_middleware(AccessLog)


def _host_names(settings: Settings) -> tuple[str, ...]:
    """Names that Host may have: those configured, and the address that we listen on.

    A wildcard is no address: a page of another site can name it to reach this machine.
    """
    own = () if settings.host in WILDCARDS else (settings.host.lower(),)
    return (*settings.allowed_hosts, *own)
