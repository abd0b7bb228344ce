"""`/v1/login` and `/v1/tickets`: a browser's ways to show its token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response

from tidegate.app.access.grants import Subject
from tidegate.app.documents import read
from tidegate.app.http.answers import json_answer
from tidegate.app.http.audited import note_subject
from tidegate.app.http.cookies import SESSION, check_size, cookies, set_cookie
from tidegate.app.http.openapi import answer, json_body, name_of, problems, ref
from tidegate.app.http.parameters import STRICT
from tidegate.app.http.requests import posted_body
from tidegate.app.http.routes.models.access import IssuedTicket, Login, LoginAnswer
from tidegate.app.http.scope import subject_in
from tidegate.app.refusals import Refused
from tidegate.app.settings.checks import is_loopback

if TYPE_CHECKING:  # without authentication its libraries are not loaded
    from tidegate.app.access.access import Access

router = APIRouter(tags=["access"], dependencies=STRICT, generate_unique_id_function=name_of)
_REFUSED = problems("unauthenticated", "forbidden", "csrf", "not-found")


def access_of(request: Request) -> Access:
    """Return the access of this gateway.

    Raises:
        Refused: not-found; nobody logs in where nobody has to.
    """
    found = request.app.state.access
    if found is None:
        raise Refused("not-found", "The gateway asks for no tokens.")
    return cast("Access", found)


def public_origin(request: Request) -> str:
    """Return the origin by which browsers and the identity provider know the gateway.

    A proxy may have terminated TLS. Beyond loopback the scheme is https in any case: browsers keep
    the cookies of a login from nowhere else.
    """
    host = request.headers["host"]
    is_local = is_loopback(urlsplit(f"//{host}").hostname or "")
    return f"{request.url.scheme if is_local else 'https'}://{host}"


@router.post(
    "/v1/login",
    summary="Keep a token in a cookie, for the pages of the gateway",
    responses={
        200: answer("The subject, and what its changes need", ref(LoginAnswer)),
        **_REFUSED,
        **problems("message-invalid", "message-too-large", "unsupported-media-type"),
    },
    openapi_extra=json_body(Login),
)
async def login(request: Request) -> Response:
    """Take `{"token"}`; set the cookie, and answer with the proof that changes need, too."""
    access = access_of(request)
    token = read(Login, await posted_body(request)).token
    check_size(token)
    subject = await access.subject_of(token)
    note_subject(request.scope, subject)
    await end_login(request, but=token)
    seconds = max(0, (subject.expires_ms - access.now_ms()) // 1_000)
    found = json_answer(_shown(subject, token))
    found.headers["Set-Cookie"] = set_cookie(SESSION, token, seconds)
    return found


@router.get(
    "/v1/login",
    summary="Who the token is",
    responses={200: answer("The subject and its grants", ref(LoginAnswer)), **_REFUSED},
)
async def show_login(request: Request) -> Response:
    """Return the subject of this request, with its grants."""
    access = access_of(request)
    subject = subject_in(request.scope)
    assert subject is not None, "the guard lets nobody else in"
    from tidegate.app.http.guard import token_in

    if subject.certificate:
        return json_answer(_shown(subject, ""))
    # A page that was loaded again has lost the proof that its login gave it.
    token, is_cookie = token_in(request.scope)
    if not is_cookie:
        return json_answer(_shown(subject, ""))
    provider, home = access.provider, f"{public_origin(request)}/"
    logout = None if provider is None else await provider.logout_address(home)
    return json_answer({**_shown(subject, token), **({"logout": logout} if logout else {})})


@router.delete(
    "/v1/login",
    status_code=204,
    summary="End the login: void its token, and forget the cookie",
    response_class=Response,
    response_description="It has ended",
    responses={**_REFUSED, **problems("bus-unavailable", "not-ready")},
)
async def logout(request: Request) -> Response:
    """Void the token of the cookie at every gateway, and remove the cookie; 204.

    Copies of the cookie open nothing from then on. Where the token cannot be revoked the
    cookie stays, so that the answer never claims a logout that has not happened.
    """
    subject = await end_login(request)
    if subject is not None:
        note_subject(request.scope, subject)
    return Response(status_code=204, headers={"Set-Cookie": set_cookie(SESSION, "", 0)})


async def end_login(request: Request, but: str = "") -> Subject | None:
    """Void the tokens in the cookie of a request, but one, and return whose they were.

    Raises:
        Refused: not-found; not-ready or bus-unavailable, where one may still hold.
    """
    access, found = access_of(request), None
    for token in cookies(request.scope, SESSION):
        if token != but:
            found = await access.log_out(token) or found
    return found


@router.post(
    "/v1/tickets",
    status_code=201,
    summary="Get a ticket, for a stream that cannot send a header",
    responses={201: answer("The ticket", ref(IssuedTicket)), **_REFUSED},
)
async def issue_ticket(request: Request) -> Response:
    """Issue `{"ticket", "expires_ms"}`, which opens one stream as `?ticket=`."""
    access, subject = access_of(request), subject_in(request.scope)
    await posted_body(request, may_be_empty=True)
    assert subject is not None, "the guard lets nobody else in"
    ticket, expires_ms = access.tickets.issue(subject, access.now_ms())
    return json_answer({"ticket": ticket, "expires_ms": expires_ms}, 201)


def _shown(subject: Subject, token: str) -> dict[str, Any]:
    from tidegate.app.access.access import csrf_proof

    shown = {
        "sub": subject.sub,
        "expires_ms": subject.expires_ms,
        "grants": subject.grants.documents(),
    }
    return {**shown, "csrf": csrf_proof(token)} if token else shown
