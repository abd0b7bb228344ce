"""The keys that tokens are verified with: a JWK Set (RFC 7517) from a file or from an address.

A set holds one family of algorithms. A token's own word for its algorithm is never trusted: each
key has its algorithm, and a secret can never pass for a public key (RFC 8725, 2.1).
"""

from __future__ import annotations

import asyncio
import hashlib
import http
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from tidegate.app.access.outbound import ANSWER_BYTES_MAX, Unreachable, fetch, is_safe
from tidegate.app.logs import event

logger = logging.getLogger("tidegate.access")

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "HS": ("HS256", "HS384", "HS512"),
    "RS": ("RS256", "RS384", "RS512"),
    "PS": ("PS256", "PS384", "PS512"),
    "ES": ("ES256", "ES384", "ES512"),
    "EdDSA": ("EdDSA",),
}
SECRET_BYTES_MIN: Final = 32
RSA_BITS_MIN: Final = 2048
KEYS_MAX: Final = 100
REFRESH_S: Final = 300.0
# An unknown key may be a new one. Asked for at most this often, as anybody can make one up.
RETRY_S: Final = 10.0


class KeysInvalid(ValueError):
    """A set of keys that cannot be used; `str()` is one readable line."""


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """One key: `id` is its `kid`, `digest` identifies it whatever it is called."""

    id: str | None
    digest: str
    jwk: PyJWK

    @property
    def algorithm(self) -> str:
        """The one algorithm that the key verifies."""
        return str(self.jwk.algorithm_name)


@dataclass(frozen=True, slots=True, repr=False)
class KeySet:
    """The keys of an issuer, all of one family."""

    keys: tuple[Key, ...] = ()

    @classmethod
    def parse(cls, text: bytes) -> KeySet:
        """Parse a JWK Set; keys for encryption and of unknown types are passed over.

        Raises:
            KeysInvalid: no key is left, a secret is short, a key is private, or families are mixed.
        """
        try:
            document = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise KeysInvalid("expected a JWK Set, a JSON object with keys") from None
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list) or len(listed) > KEYS_MAX:
            raise KeysInvalid(f'expected {{"keys": [...]}} with at most {KEYS_MAX} keys')
        keys = tuple(found for each in listed if (found := _key(each)) is not None)
        if not keys:
            raise KeysInvalid(f"no key for signatures of {', '.join(FAMILIES)}")
        families = {family_of(key.algorithm) for key in keys}
        if len(families) > 1:
            raise KeysInvalid(f"one family of algorithms, not {' and '.join(sorted(families))}")
        return cls(keys)

    def candidates(self, key_id: object, algorithm: object) -> list[Key]:
        """Return the keys that may have signed a token with this header."""
        fitting = [key for key in self.keys if key.algorithm == algorithm]
        if key_id is None:
            return fitting
        return [key for key in fitting if key.id == key_id]

    def __contains__(self, digest: object) -> bool:
        """Return True if a key of this digest is in the set."""
        return any(key.digest == digest for key in self.keys)


def family_of(algorithm: str) -> str:
    """Return the family of an algorithm; the empty text for one that is not taken."""
    return next((name for name, members in FAMILIES.items() if algorithm in members), "")


def _key(document: Any) -> Key | None:
    if not isinstance(document, dict):
        raise KeysInvalid("a key is a JSON object")
    if document.get("use", "sig") != "sig":
        return None
    # The whole private key would be on every gateway, and each could make tokens.
    if document.get("kty") != "oct" and "d" in document:
        raise KeysInvalid("a private key; the gateway takes public keys, and secrets of HS")
    try:
        jwk = PyJWK(document)
    except (PyJWTError, ValueError, TypeError):
        return None
    if not family_of(jwk.algorithm_name):
        return None
    _check_strength(jwk)
    key_id = document.get("kid")
    digest = hashlib.sha256(msgspec.json.encode(document, order="sorted")).hexdigest()
    return Key(key_id if isinstance(key_id, str) else None, digest, jwk)


def _check_strength(jwk: PyJWK) -> None:
    # RFC 7518, 3.2 and 3.3: a secret is as long as its hash, an RSA key has 2048 bits.
    if isinstance(jwk.key, bytes):
        least = max(SECRET_BYTES_MIN, int(jwk.algorithm_name[2:]) // 8)
        if len(jwk.key) < least:
            raise KeysInvalid(f"a secret of {jwk.algorithm_name} has at least {least} bytes")
    elif getattr(jwk.key, "key_size", RSA_BITS_MIN) < RSA_BITS_MIN and jwk.key_type == "RSA":
        raise KeysInvalid(f"an RSA key has at least {RSA_BITS_MIN} bits")


class KeySource:
    """Where the keys come from; it keeps the last good set while the place is out.

    An address is exactly the one in the settings: redirects are not followed, and no token can name
    another one.
    """

    def __init__(self, place: str) -> None:
        self.keys = KeySet()
        self.is_remote = "://" in place
        if self.is_remote and not is_safe(place):
            raise KeysInvalid("expected a file, or an https address without a name and password")
        self._place = place
        self._stamp: object = None
        self._asked_s = float("-inf")
        self._asking = asyncio.Lock()

    def load(self) -> None:
        """Read a file; an address is asked by `refresh`.

        Raises:
            KeysInvalid: it cannot be read or used.
        """
        if not self.is_remote:
            self._stamp = stamp_of(Path(self._place))
            self.keys = KeySet.parse(read_file(Path(self._place)))

    def refresh_file(self) -> bool:
        """Read a file that may have changed; return True if its keys have."""
        before = self.keys
        if not self.is_remote and stamp_of(Path(self._place)) != self._stamp:
            try:
                self.load()
            except KeysInvalid as error:
                _stay(error)
        return self.keys != before

    async def refresh(self, *, is_wanted: bool = False) -> bool:
        """Ask the address again if it is time; return True if this call has found other keys.

        `is_wanted`: a token named a key that is not there.
        """
        try:
            return await self._ask(RETRY_S if is_wanted or not self.keys.keys else REFRESH_S)
        except KeysInvalid as error:
            _stay(error)
            return False

    async def _ask(self, after_s: float) -> bool:
        # One asks, and the others wait for its answer: after a rotation many tokens of the new key
        # come at once, and a browser does not return after a 401.
        async with self._asking:
            if time.monotonic() - self._asked_s < after_s:
                return False
            self._asked_s = time.monotonic()
            try:
                status, text = await fetch(self._place)
            except Unreachable as error:
                raise KeysInvalid(f"auth_keys cannot be reached: {error}") from None
            if status != http.HTTPStatus.OK:
                raise KeysInvalid(f"auth_keys answered {status}")
            before, self.keys = self.keys, KeySet.parse(text)
            return self.keys != before


def _stay(error: KeysInvalid) -> None:
    figures = event("keys-not-read", reason=str(error))
    logger.warning("the keys stay as they are: %s", error, extra=figures)


def stamp_of(path: Path) -> object:
    """Return what changes when a file is written or replaced."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_file(path: Path) -> bytes:
    """Return the bytes of a small file.

    Raises:
        KeysInvalid: it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            text = file.read(ANSWER_BYTES_MAX + 1)
    except OSError as error:
        raise KeysInvalid(f"{path.name} cannot be read: {error.strerror}") from None
    if len(text) > ANSWER_BYTES_MAX:
        raise KeysInvalid(f"{path.name} has more than {ANSWER_BYTES_MAX} bytes")
    return text
