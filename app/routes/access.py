"""`/v1/login` and `/v1/tickets`: a browser's ways to show its token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter, Request, Response

from tidegate.app.access.grants import Subject, subject_in
from tidegate.app.http.bodies import json_answer, read
from tidegate.app.http.openapi import answer, json_body, problems, ref
from tidegate.app.http.parameters import STRICT
from tidegate.app.http.problems import Problem
from tidegate.app.http.requests import posted_body
from tidegate.app.routes.models.access import IssuedTicket, Login, LoginAnswer

if TYPE_CHECKING:  # without authentication its libraries are not loaded
    from tidegate.app.access.access import Access

router = APIRouter(tags=["access"], dependencies=STRICT)
_REFUSED = problems("unauthenticated", "forbidden", "csrf", "not-found")


def _access(request: Request) -> Access:
    """Return the access of this gateway.

    Raises:
        Problem: not-found; nobody logs in where nobody has to.
    """
    found = request.app.state.access
    if found is None:
        raise Problem("not-found", "The gateway asks for no tokens.")
    return cast("Access", found)


@router.post(
    "/v1/login",
    summary="Keep a token in a cookie, for the pages of the gateway",
    responses={
        200: answer("The subject, and what its changes need", ref(LoginAnswer)),
        **_REFUSED,
        **problems("message-invalid", "unsupported-media-type"),
    },
    openapi_extra=json_body(Login),
)
async def login(request: Request) -> Response:
    """Take `{"token"}`; set the cookie, and answer with the proof that changes need beside it."""
    access = _access(request)
    token = read(Login, await posted_body(request)).token
    subject = await access.subject_of(token)
    seconds = max(0, (subject.expires_ms - access.now_ms()) // 1_000)
    found = json_answer(_shown(subject, token))
    found.headers["Set-Cookie"] = _cookie(token, seconds)
    return found


@router.get(
    "/v1/login",
    summary="Who the token is",
    responses={200: answer("The subject and its grants", ref(LoginAnswer)), **_REFUSED},
)
async def show_login(request: Request) -> Response:
    """Return the subject of this request, with its grants."""
    _access(request)
    subject = subject_in(request.scope)
    assert subject is not None, "the guard lets nobody else in"
    from tidegate.app.access.guard import token_in

    # A page that was loaded again has lost the proof that its login gave it.
    token, is_cookie = token_in(request.scope)
    return json_answer(_shown(subject, token if is_cookie else ""))


@router.delete(
    "/v1/login",
    status_code=204,
    summary="Forget the cookie",
    response_class=Response,
    response_description="It is forgotten",
    responses=_REFUSED,
)
async def logout(request: Request) -> Response:
    """Remove the cookie; 204. The token itself holds until it expires."""
    _access(request)
    return Response(status_code=204, headers={"Set-Cookie": _cookie("", 0)})


@router.post(
    "/v1/tickets",
    status_code=201,
    summary="Get a ticket, for a stream that cannot send a header",
    responses={201: answer("The ticket", ref(IssuedTicket)), **_REFUSED},
)
async def issue_ticket(request: Request) -> Response:
    """Issue `{"ticket", "expires_ms"}`, which opens one stream as `?ticket=`."""
    access, subject = _access(request), subject_in(request.scope)
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


def _cookie(token: str, seconds: int) -> str:
    """Return the cookie of a token: for this origin alone, and for no script."""
    from tidegate.app.access.guard import COOKIE

    # No attribute can be forged: a token that was verified has letters, digits, dots, `-` and `_`.
    return f"{COOKIE}={token}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict"
