"""`/v1/login/start` and `/v1/login/callback`: a browser's way through the identity provider."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response

from tidegate.app.http.audited import note_code, note_subject
from tidegate.app.http.cookies import PENDING, SESSION, check_size, cookies, set_cookie
from tidegate.app.http.openapi import answer, header, name_of, problems
from tidegate.app.http.problems import headers_of, response_of
from tidegate.app.http.requests import query_values
from tidegate.app.http.routes.access import access_of, end_login, public_origin
from tidegate.app.refusals import Refused

if TYPE_CHECKING:  # without authentication its libraries are not loaded
    from tidegate.app.access.access import Access
    from tidegate.app.access.login.oidc import Provider

START = "/v1/login/start"
CALLBACK = "/v1/login/callback"
HTML = "text/html"
_REFUSED = problems("options-invalid", "unauthenticated", "not-found", "not-ready")
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">{refresh}
<title>Tidegate: {title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/style.css">
<main>
<h1>{title}</h1>
<p>{text}</p>
<p><a href="{link}">{link_text}</a></p>
</main>
"""

# Not strict: an identity provider may add parameters of its own to its answer (RFC 6749, 4.1.2).
router = APIRouter(tags=["access"], generate_unique_id_function=name_of)


def _login_of(request: Request) -> tuple[Access, Provider]:
    """Return the access of this gateway, and the place to log in.

    Raises:
        Refused: not-found, where there is none.
    """
    access = access_of(request)
    if access.provider is None:
        raise Refused("not-found", "The gateway has no identity provider to log in at.")
    return access, access.provider


@router.get(
    START,
    status_code=303,
    summary="Log in at the identity provider",
    response_class=Response,
    responses={
        303: answer("To the provider", headers={"Location": header("Where to log in")}),
        **_REFUSED,
    },
    openapi_extra={
        "parameters": [
            {
                "name": "return",
                "in": "query",
                "required": False,
                "description": "Where to go after the login, a path of this gateway; / by default",
                "schema": {"type": "string", "pattern": "^/(?!/)"},
            }
        ]
    },
)
async def start_login(request: Request) -> Response:
    """Send the browser to the provider, with a cookie that ties the answer to it."""
    try:
        _, provider = _login_of(request)
        from tidegate.app.access.login.oidc import LOGIN_S_MAX, PendingLogin

        query = query_values(request.scope, {"return": "options-invalid"})
        login = PendingLogin.begin(query.get("return", "/"))
        address = await provider.login_address(login, _callback_address(request))
        # Here and not when the browser is back: it keeps the Strict cookie to itself then, and the
        # token of the login before would live on.
        await end_login(request)
    except Refused as problem:
        return _refusal(request, problem)
    # Lax: the provider's page leads back here, and Strict cookies do not come along from there.
    cookie = set_cookie(PENDING, login.cookie(), LOGIN_S_MAX, same_site="Lax")
    return Response(status_code=303, headers={"Location": address, "Set-Cookie": cookie})


@router.get(
    CALLBACK,
    summary="Come back from the identity provider",
    response_class=Response,
    responses={
        200: answer("A page that leads on", content={HTML: {"schema": {"type": "string"}}}),
        **_REFUSED,
        **problems("message-too-large"),
    },
)
async def finish_login(request: Request) -> Response:
    """Exchange the code for an ID token, keep it in the cookie of the login, and lead on."""
    over = set_cookie(PENDING, "", 0, same_site="Lax")
    try:
        cookie, path = await _finished(request)
    except Refused as problem:
        found = _refusal(request, problem)
    else:
        found = _going_on(path)
        found.headers.append("Set-Cookie", cookie)
    found.headers.append("Set-Cookie", over)
    return found


async def _finished(request: Request) -> tuple[str, str]:
    """Return the cookie of the login, and the path to go on to.

    Raises:
        Refused: whatever refuses the login.
    """
    access, provider = _login_of(request)
    from tidegate.app.access.login.oidc import PendingLogin
    from tidegate.app.access.tokens import unauthenticated

    given = list(cookies(request.scope, PENDING))
    login = PendingLogin.parse(given[0]) if len(given) == 1 else None
    if login is None:
        raise unauthenticated("This browser has begun no login, or too long ago.")
    code = await provider.verify_callback(login, _answer_in(request))
    token = await provider.exchange(login, code, _callback_address(request))
    check_size(token)
    subject = await access.subject_of(token, is_login=True)
    provider.check(login, token)
    note_subject(request.scope, subject)
    seconds = max(0, (subject.expires_ms - access.now_ms()) // 1_000)
    return set_cookie(SESSION, token, seconds), login.return_to


def _answer_in(request: Request) -> dict[str, str]:
    """Return what the provider had the browser bring.

    Raises:
        Refused: options-invalid.
    """
    try:
        query = request.scope["query_string"].decode("ascii")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=32)
    except ValueError:
        raise Refused("options-invalid", "The provider's answer cannot be read.") from None
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refused("options-invalid", "The provider's answer has a parameter twice.")
    return found


def _callback_address(request: Request) -> str:
    """Return where the provider sends the browser back to: the host that it knows us by."""
    return public_origin(request) + CALLBACK


def _going_on(path: str) -> Response:
    """Return a page that leads to the path.

    A redirect would still count as coming from the provider's site, and the browser would keep the
    Strict cookie back.
    """
    refresh = f'\n<meta http-equiv="refresh" content="0;url={escape(path)}">'
    text = "You are logged in."
    page = _PAGE.format(
        title="Logged in", text=text, link=escape(path), link_text="Go on", refresh=refresh
    )
    return Response(page, media_type=HTML)


def _refusal(request: Request, problem: Refused) -> Response:
    """Return a problem; as a page to a browser, which shows it to a person."""
    if HTML not in request.headers.get("accept", ""):
        return response_of(problem)
    note_code(request.scope, problem.code)
    page = _PAGE.format(
        title=escape(problem.title),
        text=escape(problem.detail),
        link=START,
        link_text="Log in again",
        refresh="",
    )
    return Response(page, problem.status, headers_of(problem), HTML)
