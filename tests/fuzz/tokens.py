"""Targets: tokens, and the grants and key sets behind them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from random import Random
from typing import Any, Final

import msgspec

from tests.fuzz.documents import a_value
from tests.fuzz.languages import FILTERS, a_select
from tests.fuzz.mutating import BYTES, CHARACTERS, mutated
from tests.fuzz.target import Target
from tests.support.tokens import claims, grant, private_key, public_jwk, signed
from tidegate.app.access.grants import GrantInvalid, Grants, parse_grants
from tidegate.app.access.keys import KeySet, KeysInvalid
from tidegate.app.access.policy import Policy, PolicyInvalid
from tidegate.app.access.tokens import SKEW_S, Issuer, TokenInvalid, Verifier

ISSUER: Final = Issuer("tidegate", ("tidegate",))
ALGORITHMS: Final = ("HS256", "ES256", "EdDSA")
KEYS: Final = {
    name: KeySet.parse(json.dumps({"keys": [public_jwk(name)]}).encode()) for name in ALGORITHMS
}
GOOD: Final = {
    name: signed(claims("ann", grant("read prices.>"), jti="t1"), name) for name in ALGORITHMS
}
NOW_S: Final = int(time.time())
TEXT_PIECES: Final = (*CHARACTERS, "..", "=", "==", "A", "eyJ", "none", "e30")
HEADERS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"kid": "k2"}, {"kid": None}, {"kid": 7}, {"kid": "../../dev/null"}, {"typ": "at+jwt"},
    {"typ": "zzq"}, {"typ": 7}, {"alg": "none"}, {"alg": "HS512"}, {"alg": "RS256"}, {"alg": None},
    {"alg": ["HS256"]}, {"crit": ["zzq"]}, {"crit": []}, {"crit": ["b64"], "b64": False},
    {"jwk": {}}, {"jku": "http://127.0.0.1:1/"}, {"x5u": "x"}, {"x5c": []}, {"b64": False},
    {"zzq": 1}, {"cty": "JWT"},
)  # fmt: skip
NUMBERS: Final[tuple[Any, ...]] = (
    NOW_S + 600, NOW_S - 600, str(NOW_S + 600), float(NOW_S + 600), True, None, 10**400, -1, 0,
    [NOW_S + 600], {}, "", "zzq", 1e308, NOW_S * 1_000,
)  # fmt: skip
NAMES: Final[tuple[Any, ...]] = (
    "tidegate", "Tidegate", "", None, 7, ["tidegate"], ["a", "tidegate"], [], [7], {},
                "tidegate ", "\ud800")  # fmt: skip
SUBS: Final = ("ann", "", "a" * 255, "a" * 256, 7, None, ["ann"], "a\r\nb", "a\0", "\u2028",
               "\ud800",
               "\xe9", " ")  # fmt: skip
GRANTS: Final[tuple[Any, ...]] = (
    {}, [], "read", [{}], [7], [{"topics": ">", "can": ["read"]}], [{"topics": ">", "can": "read"}],
    [{"topics": "a*", "can": ["read"]}], [{"topics": ">", "can": ["zzq"]}], None,
    [{"topics": ">", "can": ["read"], "filter": "/a ="}], [{"topics": ">", "can": ["read"],
    "zzq": 1}],
    [{"topics": ">", "can": ["read"]}] * 300,
)  # fmt: skip


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _sealed(header: bytes, payload: bytes) -> str:
    """A token that the issuer's key has signed, whatever it says."""
    text = f"{_encoded(header)}.{_encoded(payload)}"
    mac = hmac.new(private_key("HS256"), text.encode(), hashlib.sha256).digest()
    return f"{text}.{_encoded(mac)}"


def a_forged_token(random: Random) -> tuple[str, str]:
    """A good token with something changed after it was signed, and its algorithm."""
    name = random.choice(ALGORITHMS)
    token = GOOD[name]
    if random.random() < 0.5:
        return name, mutated(random, token, TEXT_PIECES)
    parts = token.split(".")
    at = random.randrange(3)
    inner = base64.urlsafe_b64decode(parts[at] + "==")
    parts[at] = _encoded(mutated(random, inner, BYTES))
    if random.random() < 0.2:
        parts[random.randrange(3)] = GOOD[random.choice(ALGORITHMS)].split(".")[random.randrange(3)]
    return name, ".".join(parts)


def check_forged(given: tuple[str, str]) -> bool:
    """A token passes only if it says, byte for byte, what was signed."""
    name, token = given
    try:
        found = Verifier(ISSUER).subject(token, KEYS[name], Policy(), NOW_S * 1_000)
    except TokenInvalid:
        return False
    # Texts of base64 may differ in bits that stand for nothing.
    one, other = (
        [base64.urlsafe_b64decode(part + "==") for part in it.split(".")]
        for it in (token, GOOD[name])
    )
    assert one == other, token
    assert found.sub == "ann"
    return True


def a_signed_token(random: Random) -> tuple[bytes, bytes]:
    """Header and claims that the issuer has really signed, and which are odd."""
    header: dict[str, Any] = {"alg": "HS256", "typ": "JWT", "kid": "k1"}
    header |= random.choice(HEADERS) if random.random() < 0.3 else {}
    payload: dict[str, Any] = claims("ann", grant("read prices.>"))
    for name, values in (("exp", NUMBERS), ("nbf", NUMBERS), ("iat", NUMBERS), ("iss", NAMES),
                         ("aud", NAMES), ("sub", SUBS), ("jti", SUBS)):  # fmt: skip
        if random.random() < 0.15:
            payload[name] = random.choice(values)
    if random.random() < 0.2:
        payload["tidegate"] = {"grants": random.choice(GRANTS)}
    body = json.dumps(payload).encode()
    if random.random() < 0.15:
        body = mutated(random, body, BYTES)
    elif random.random() < 0.05:
        body = a_value(random).encode()
    return json.dumps(header).encode(), body


def _is_sound(header: dict[str, Any], payload: Any) -> bool:
    """Return True for a token that may pass (RFC 7519, and rule access-1)."""
    now_s = time.time()

    def ahead(name: str) -> bool:
        return name in payload and float(payload[name]) > now_s + SKEW_S + 1

    audience = payload.get("aud")
    return (
        header["alg"] == "HS256"
        and header.get("kid") in (None, "k1")
        and str(header.get("typ", "JWT")).lower() in ("jwt", "at+jwt", "application/at+jwt")
        and not {"jwk", "jku", "x5u", "x5c"} & header.keys()
        and header.get("crit") in (None, [], ["b64"])
        and isinstance(payload["exp"], int | float)
        and not isinstance(payload["exp"], bool)
        and payload["exp"] > now_s - SKEW_S - 1
        and not ahead("nbf")
        and not ahead("iat")
        and payload["iss"] == "tidegate"
        and (audience == "tidegate" or (isinstance(audience, list) and "tidegate" in audience))
        and isinstance(payload["sub"], str)
        and 1 <= len(payload["sub"]) <= 255
        and payload["sub"].isprintable()
    )


def check_signed(given: tuple[bytes, bytes]) -> bool:
    """A token that was signed passes only with claims that hold."""
    token = _sealed(*given)
    try:
        found = Verifier(ISSUER).subject(token, KEYS["HS256"], Policy(), NOW_S * 1_000)
    except TokenInvalid as error:
        assert "zzq" not in str(error)
        return False
    header, payload = (json.loads(part) for part in given)
    assert _is_sound(header, payload), given
    assert found.sub == payload["sub"]
    assert isinstance(found.expires_ms, int)
    # Its grants can be shown, and mean the same then.
    shown = found.grants.documents()
    assert Grants(parse_grants(shown)).documents() == shown
    return True


def some_grants(random: Random) -> Any:
    """The grants of a claim, decoded."""
    documents: list[Any] = []
    for _ in range(random.randrange(3)):
        one: dict[str, Any] = {
            "topics": random.choice((">", "a.>", "a", "*.b", "tidegate.>", "a b", "", 7, "a*")),
            "can": random.choice((["read"], ["write", "admin"], [], "read", ["zzq"], None)),
        }
        if random.random() < 0.3:
            one["filter"] = random.choice((*FILTERS, "", "/a =", 7))
        if random.random() < 0.3:
            one["select"] = random.choice(("[-/,+/k]", a_select(random), "", 7, "[-/]"))
        if random.random() < 0.05:
            one["zzq"] = 1
        documents.append(one)
    return random.choice((documents, documents, documents, None, {}, 7))


def check_grants(given: Any) -> bool:
    """Grants are understood as a whole or not at all, and print as what they are."""
    try:
        found = Grants(parse_grants(given))
    except GrantInvalid:
        return False
    shown = found.documents()
    assert (
        Grants(parse_grants(msgspec.json.decode(msgspec.json.encode(shown)))).documents() == shown
    )
    assert not (found.may_anywhere("zzq"))
    return bool(given)


_SET: Final = json.dumps({"keys": [public_jwk("ES256")]}).encode()
_POLICY: Final = (
    b'claim = "groups"\nrevoked = ["m"]\n[[grants.a]]\ntopics = "p.>"\ncan = ["read"]\n'
)


def a_file(random: Random) -> bytes:
    """A set of keys or a policy with something wrong."""
    return mutated(random, random.choice((_SET, _POLICY)), (*BYTES, b"=", b"[[", b"]]", b'"""'))


def check_file(data: bytes) -> bool:
    """A file is used as a whole, or refused with one line."""
    accepted = False
    for parse, refusal in ((KeySet.parse, KeysInvalid), (Policy.parse, PolicyInvalid)):
        try:
            parse(data)
        except refusal as error:
            assert len(str(error).splitlines()) == 1, error
        else:
            accepted = True
    return accepted


TARGETS: Final = (
    Target("forged", a_forged_token, check_forged),
    Target("signed", a_signed_token, check_signed),
    Target("grants", some_grants, check_grants),
    Target("files", a_file, check_file),
)
