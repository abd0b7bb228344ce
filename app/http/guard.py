"""The guards: the middleware that finds the subject of a request and asks the table of rules.

Behind it a route finds its subject in the scope. A route that reads topics named in its body asks
the subject by itself, and so does whatever plans a subscription.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.app.access.access import Access, csrf_proof
from tidegate.app.access.grants import (
    OBSERVE,
    WRITE,
    Subject,
    check_owner,
    check_reading,
    forbidden,
    session_unknown,
)
from tidegate.app.access.tokens import TokenInvalid, unauthenticated
from tidegate.app.http.audited import note_subject
from tidegate.app.http.cookies import SESSION, cookies
from tidegate.app.http.internal_call import MARK, certificate_of
from tidegate.app.http.middleware import SAFE_METHODS
from tidegate.app.http.problems import DETAILS, STREAMS, HttpRefused
from tidegate.app.http.requests import (
    SESSIONS_PATH,
    has_ending,
    raw_path,
    session_id,
    topic_name,
    topic_or_pattern,
)
from tidegate.app.http.rules import Need, methods_of, rule_of
from tidegate.app.http.scope import SUBJECT
from tidegate.app.refusals import Refused, TokenRefused

CSRF_HEADER: Final = b"tidegate-csrf"
TICKET: Final = b"ticket="
OwnerOf = Callable[[str], str | None]
TopicsOf = Callable[[str], Iterable[str]]


class Guard:
    """Lets a request pass with its subject, or refuses it.

    Args:
        app: what is guarded.
        access: the keys and the policy.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app for a request that its subject may make.

        Raises:
            Refused: unauthenticated, forbidden, csrf or not-found.
        """
        if scope["type"] == "http":
            path = raw_path(scope).decode("latin-1")
            rule = rule_of(scope["method"], path)
            need = None if rule is None else rule.need
            # Workers of one address ask each other for figures in nobody's name.
            is_open = need is Need.NOTHING or (MARK in scope and path == "/metrics")
            if not is_open:
                scope = await self._identified(scope)
                note_subject(scope, scope[SUBJECT])
                self._check(scope, path, need)
        await self._app(scope, receive, send)

    async def _identified(self, scope: Scope) -> Scope:
        """Return the scope with its subject, and without a ticket."""
        ticket, query = _ticket(scope)
        if ticket is not None:
            # With the ticket, where it stands: only the very same address may come again.
            target = raw_path(scope) + b"?" + scope["query_string"]
            subject = await self._access.redeemed(ticket, target)
            return {**scope, "query_string": query, SUBJECT: subject}
        return {**scope, SUBJECT: await subject_of(scope, self._access)}

    def _check(self, scope: Scope, path: str, need: Need | None) -> None:
        subject: Subject = scope[SUBJECT]
        grants = subject.grants
        match need:
            # A route without a rule is no route: it is refused, whatever it would answer.
            case None if methods := methods_of(path):
                raise HttpRefused("method-not-allowed", DETAILS[405], headers={"Allow": methods})
            case None:
                raise Refused("not-found", DETAILS[404])
            case Need.OBSERVE:
                if not grants.may_anywhere(OBSERVE):
                    raise forbidden(OBSERVE)
            case Need.READ:
                check_reading(grants, topic_or_pattern(scope))
            case Need.WHOLE:
                grants.require_whole(topic_name(scope))
            case Need.WRITE | Need.ADMIN:
                grants.require(need.value, topic_name(scope))
            case Need.REMOVE:
                grants.require(WRITE, topic_name(scope))
                grants.require_whole(topic_name(scope))
            case Need.DEFINITION:
                if not grants.may_define(topic_name(scope)):
                    grants.require_whole(topic_name(scope))


class OwnerGuard:
    """Lets a request about a session pass for the subject that opened it, or may observe it.

    It stands behind the middleware that forwards: a session that another gateway left is first
    adopted, and only then its owner is known here.

    Args:
        app: what is guarded.
        owner_of: the `sub` that opened a session, None for a session that is not here.
        topics_of: the topics of a session, none for one that is not here.
    """

    def __init__(self, app: ASGIApp, owner_of: OwnerOf, topics_of: TopicsOf) -> None:
        self._app = app
        self._owner_of = owner_of
        self._topics_of = topics_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app for a request about a session that its subject may see or change.

        Raises:
            Refused: session-unknown.
        """
        # Most requests are about topics: they do not pay for a second look at the rules.
        if scope["type"] == "http" and raw_path(scope).startswith(SESSIONS_PATH):
            self._check(scope)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        path = raw_path(scope).decode("latin-1")
        rule = rule_of(scope["method"], path)
        # A trace needs what its route asks for, and a session that its reader may see.
        if rule is None or rule.need not in (Need.OWNER, Need.VIEWER, Need.OBSERVE):
            return
        subject: Subject = scope[SUBJECT]
        name = session_id(scope)
        if rule.need is not Need.OWNER and subject.grants.observes(self._topics_of(name)):
            return
        owner = self._owner_of(name)
        # The route of a stream brings the session here, and then admits its owner only.
        if owner is None and not path.endswith("/events"):
            # It may arrive before the route has read the body, and nobody would ask again.
            raise session_unknown()
        check_owner(subject, owner)


async def subject_of(scope: Scope, access: Access) -> Subject:
    """Return the subject of a request without a ticket: of its token, or of its certificate.

    Raises:
        Refused: unauthenticated, csrf; not-ready while no keys could be had yet.
    """
    certificate = None if has_token(scope) else certificate_of(scope)
    known = None if certificate is None else access.subject_of_certificate(certificate)
    if known is not None:
        return known
    token, is_cookie = token_in(scope)
    subject = await access.subject_of(token, is_login=is_cookie)
    if is_cookie and MARK not in scope and scope["method"] not in SAFE_METHODS:
        _check_proof(scope, token)
    return subject


def has_token(scope: Scope) -> bool:
    """Return True if a request shows a token, good or bad; a certificate is then not asked."""
    is_named = any(name == b"authorization" for name, _ in scope["headers"])
    return is_named or any(True for _ in cookies(scope, SESSION))


def token_in(scope: Scope) -> tuple[str, bool]:
    """Return the token of a request, and whether it is the cookie's; a header goes first.

    Raises:
        Refused: unauthenticated.
    """
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) > 1:
        raise TokenRefused("A request has one Authorization header.", "invalid_request")
    if given:
        scheme, _, token = given[0].decode("latin-1").strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise unauthenticated("Authorization is Bearer and a token.")
        return token.strip(), False
    found = list(cookies(scope, SESSION))
    if len(found) > 1:
        raise TokenInvalid("the cookie comes twice")
    if not found:
        raise unauthenticated("The request needs a token: Authorization: Bearer …")
    return found[0], True


def _check_proof(scope: Scope, token: str) -> None:
    given = [value for name, value in scope["headers"] if name == CSRF_HEADER]
    if len(given) != 1 or not hmac.compare_digest(given[0], csrf_proof(token).encode()):
        detail = "A change with the cookie needs the header Tidegate-CSRF, as the login gave it."
        raise Refused("csrf", detail)


def _ticket(scope: Scope) -> tuple[str | None, bytes]:
    """Return the ticket of a stream, and the query without it."""
    query: bytes = scope["query_string"]
    if TICKET not in query or scope["method"] != "GET" or not has_ending(scope["path"], STREAMS):
        return None, query
    pairs = query.split(b"&")
    tickets = [pair[len(TICKET) :] for pair in pairs if pair.startswith(TICKET)]
    # `ticket=` may also stand in the value of another parameter, such as a filter.
    if not tickets:
        return None, query
    if len(tickets) > 1:
        raise TokenInvalid("the ticket is not valid")
    rest = b"&".join(pair for pair in pairs if not pair.startswith(TICKET))
    return tickets[0].decode("latin-1"), rest
