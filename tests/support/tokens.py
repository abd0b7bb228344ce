"""An issuer for tests: keys of every family, the sets that gateways read, and tokens."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

LIFE_S = 7 * 86_400
"""Tokens of a module are made when it is imported, and a run of all tests takes hours."""

SECRET = b"0123456789abcdef0123456789abcdef"


def private_key(algorithm: str, number: int = 1) -> Any:
    """A key of this algorithm; another number is another key."""
    # The cache takes a number that is given for another call than the same one by default.
    return _made_key(algorithm, number)


@cache
def _made_key(algorithm: str, number: int) -> Any:
    match algorithm[:2]:
        case "HS":
            return SECRET * 2 if number == 1 else bytes([number]) * 64
        case "RS" | "PS":
            return rsa.generate_private_key(65537, 2048)
        case "ES":
            curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
            return ec.generate_private_key(curves[algorithm])
    return ed25519.Ed25519PrivateKey.generate()


def public_jwk(
    algorithm: str, kid: str | None = "k1", number: int = 1, **more: Any
) -> dict[str, Any]:
    """The key as a gateway reads it."""
    private = private_key(algorithm, number)
    made = jwt.get_algorithm_by_name(algorithm)
    public = private if isinstance(private, bytes) else private.public_key()
    document = dict(made.to_jwk(public, as_dict=True))
    document.pop("key_ops", None)
    named = {} if kid is None else {"kid": kid}
    return {**document, "alg": algorithm, "use": "sig", **named, **more}


def write_keys(path: Path, *keys: Mapping[str, Any]) -> str:
    """Write a JWK Set; its path."""
    path.write_text(json.dumps({"keys": list(keys)}))
    return str(path)


def claims(sub: str = "ann", *grants: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The claims of a good token; None as a value leaves one out."""
    now = int(time.time())
    given = {
        "sub": sub,
        "iss": "tidegate",
        "aud": "tidegate",
        "exp": now + LIFE_S,
        "iat": now,
        "tidegate": {"grants": list(grants)},
        **more,
    }
    return {name: value for name, value in given.items() if value is not None}


def signed(
    payload: Mapping[str, Any],
    algorithm: str = "HS256",
    kid: str | None = "k1",
    number: int = 1,
    **header: Any,
) -> str:
    """A token with these claims."""
    named = {} if kid is None else {"kid": kid}
    key = private_key(algorithm, number)
    return jwt.encode(dict(payload), key, algorithm, headers={**named, **header})


def unsigned(payload: Mapping[str, Any], algorithm: str = "none", signature: bytes = b"") -> str:
    """A token that says of itself how it is signed."""
    header = {"alg": algorithm, "typ": "JWT", "kid": "k1"}
    parts = (json.dumps(header).encode(), json.dumps(dict(payload)).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def grant(text: str, **more: str) -> dict[str, Any]:
    """A grant from `read,write prices.>`."""
    verbs, topics = text.split()
    return {"topics": topics, "can": verbs.split(","), **more}


def bearer(token: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {token}"}


def token_of(sub: str, *grants: str | Mapping[str, Any], **more: Any) -> dict[str, str]:
    """The header of a subject with these grants."""
    each = [grant(it) if isinstance(it, str) else it for it in grants]
    return bearer(signed(claims(sub, *each, **more)))
