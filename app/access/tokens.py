"""Tokens: JSON Web Tokens (RFC 7519), verified by the keys of one issuer."""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import jwt

from tidegate.app.access.grants import (
    CERTIFICATE_PREFIX,
    GrantInvalid,
    Grants,
    Subject,
    named_values,
    parse_grants,
)
from tidegate.app.access.keys import KeySet
from tidegate.app.access.policy import Policy
from tidegate.app.refusals import Refused, TokenRefused

CLAIM: Final = "tidegate"
REQUIRED: Final = ("exp", "iss", "aud", "sub")
SKEW_S: Final = 30
EXPIRES_S_MAX: Final = 253_402_300_799
TOKEN_CHARACTERS_MAX: Final = 8192
# Types of RFC 9068 and of RFC 7519. A token for another use, such as a logout, is none of ours.
TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
# Header parameters by which a token brings its key, or the address of it (RFC 7515, 4.1).
KEY_PARAMETERS: Final = frozenset({"jku", "jwk", "x5u", "x5c"})
VERIFIED_MAX: Final = 4_096

_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
# A lone surrogate, which JSON can spell, has no UTF-8: no answer or log could carry it.
# Marks of writing direction or byte order would have a log show another name than the one it is.
_SUB = re.compile(
    r"[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]{1,255}"
)


class TokenInvalid(TokenRefused):
    """A token, or a ticket in place of one, that proves nothing.

    Args:
        why: without any of its text.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"The token is not taken: {why}.")


class KeyUnknown(TokenInvalid):
    """A token whose key is not in the set, perhaps not yet."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """The issuer whose tokens are taken, and the audiences of which they must name one."""

    name: str
    audiences: tuple[str, ...]


class Verifier:
    """Turns tokens into subjects; remembers those that it has verified."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        # By digest: no token is kept. A signature costs some 100 us, and clients repeat theirs.
        self._verified: OrderedDict[bytes, Subject] = OrderedDict()

    def forget(self) -> None:
        """Verify every token again: keys or policy have changed."""
        self._verified.clear()

    def subject(self, token: str, keys: KeySet, policy: Policy, now_ms: int) -> Subject:
        """Return the subject of a token.

        Raises:
            TokenInvalid, KeyUnknown: it proves nothing.
        """
        digest = hashlib.sha256(token.encode()).digest()
        known = self._verified.get(digest)
        if known is None:
            known = self._verify(token, keys, policy)
            self._verified[digest] = known
            if len(self._verified) > VERIFIED_MAX:
                self._verified.popitem(last=False)
        if now_ms >= known.expires_ms + SKEW_S * 1_000:
            raise TokenInvalid("it has expired")
        return known

    def _verify(self, token: str, keys: KeySet, policy: Policy) -> Subject:
        if len(token) > TOKEN_CHARACTERS_MAX or not _TOKEN.fullmatch(token):
            raise TokenInvalid("it is not a signed JWT")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenInvalid("it is not a signed JWT") from None
        if str(header.get("typ", "jwt")).lower() not in TYPES:
            raise TokenInvalid("it is of another type")
        # They would be ignored; a token with them is meant for a verifier that trusts them.
        if not KEY_PARAMETERS.isdisjoint(header):
            raise TokenInvalid("it names its own key")
        found = keys.candidates(header.get("kid"), header.get("alg"))
        if not found:
            raise KeyUnknown("its key is not known, or not for its algorithm")
        for key in found:
            try:
                claims = self._claims(token, key.jwk)
            except jwt.InvalidSignatureError:
                continue
            return _subject(claims, key.digest, _name_of(token), policy)
        raise TokenInvalid("its signature is wrong")

    def _claims(self, token: str, jwk: jwt.PyJWK) -> dict[str, Any]:
        try:
            return jwt.decode(
                token, jwk,
                algorithms=[jwk.algorithm_name],
                issuer=self._issuer.name,
                audience=self._issuer.audiences,
                leeway=SKEW_S,
                options={"require": list(REQUIRED), "enforce_minimum_key_length": True},
            )  # fmt: skip
        except jwt.InvalidSignatureError:
            raise
        except jwt.PyJWTError as error:
            raise TokenInvalid(_REASONS.get(type(error), "its claims do not fit")) from None
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise TokenInvalid("its claims do not fit") from None


_REASONS: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "it has expired",
    jwt.ImmatureSignatureError: "it is not valid yet",
    jwt.InvalidAudienceError: "it is for another audience",
    jwt.InvalidIssuerError: "it is of another issuer",
    jwt.MissingRequiredClaimError: f"it lacks one of {', '.join(REQUIRED)}",
}


def _name_of(token: str) -> str:
    """Return what names this token in `tidegate.revoked`; it tells nothing of the token.

    Made of what is signed: a signature can be spelled in more than one way, by the last bits of
    base64 or the other root of ECDSA, and each spelling would be another token.
    """
    digest = hashlib.sha256(token.rpartition(".")[0].encode()).digest()
    return f"token:{urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _subject(claims: dict[str, Any], key_id: str, name: str, policy: Policy) -> Subject:
    expires = claims["exp"]
    # PyJWT takes numbers in texts, too; RFC 7519 has numbers only.
    if isinstance(expires, bool) or not isinstance(expires, int | float):
        raise TokenInvalid("its exp is not a number")
    # Beyond a calendar a number may have no value in milliseconds, or none that JSON can carry.
    if not expires <= EXPIRES_S_MAX:
        raise TokenInvalid("its exp is beyond the year 9999")
    sub, token_id = claims["sub"], claims.get("jti", "")
    if not isinstance(sub, str) or not _SUB.fullmatch(sub):
        raise TokenInvalid("its sub is not a text of 1 to 255 characters")
    # An issuer that lets people choose their `sub` would hand out the sessions of certificates.
    if sub.startswith(CERTIFICATE_PREFIX):
        raise TokenInvalid("its sub is that of a client's certificate")
    held = claims.get(CLAIM, {})
    if not isinstance(held, dict):
        raise TokenInvalid(f"its claim {CLAIM} is not an object")
    try:
        own = parse_grants(held.get("grants", []))
    except GrantInvalid as error:
        # Nothing of the token's text goes into an answer.
        raise TokenInvalid(f"its grants do not fit: {str(error).split(':')[0]}") from None
    return policy.applied(
        Subject(
            sub,
            int(expires * 1_000),
            Grants(own),
            own=own,
            values=named_values(claims, policy.claim) if policy.claim else (),
            key_id=key_id,
            token_id=token_id if isinstance(token_id, str) else "",
            token=name,
        )
    )


def unauthenticated(detail: str) -> Refused:
    """Return the refusal of a request without a subject."""
    return Refused("unauthenticated", detail)
