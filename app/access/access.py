"""Access to one gateway: its keys, its policy, and who asks."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from tidegate.app.access.grants import Subject
from tidegate.app.access.keys import KeysInvalid, KeySource
from tidegate.app.access.policy import PolicyInvalid, PolicySource
from tidegate.app.access.tickets import Tickets
from tidegate.app.access.tokens import (
    SKEW_S,
    Issuer,
    KeyUnknown,
    TokenInvalid,
    Verifier,
    refused,
    unauthenticated,
)
from tidegate.app.delivery.timers import wall_ms
from tidegate.app.http.problems import Problem
from tidegate.app.http.telemetry import event
from tidegate.app.settings import Settings, SettingsInvalid
from tidegate.conflation.outputs import CloseReason

logger = logging.getLogger("tidegate.access")

LOOK_EVERY_S: Final = 1.0
"""How soon a change of keys or policy, and the end of a token, reach streams that run."""


class Look(Protocol):
    """What looks at the streams that run, now and then."""

    def __call__(self, access: Access, *, are_new: bool) -> None:
        """End the streams whose subjects may not read them any more."""


class Access:
    """Authenticates requests; reads keys and policy again when they change.

    Raises:
        SettingsInvalid: keys or policy cannot be used.
    """

    def __init__(self, settings: Settings, clock: Callable[[], int] = wall_ms) -> None:
        assert settings.auth_keys is not None
        self.tickets = Tickets()
        self.now_ms = clock
        self._verifier = Verifier(Issuer(settings.auth_issuer, settings.auth_audience))
        policy = settings.auth_policy
        self._policy = PolicySource(None if policy is None else Path(policy))
        try:
            self._keys = KeySource(settings.auth_keys)
            self._keys.load()
        except KeysInvalid as error:
            raise SettingsInvalid(f"auth_keys: {error}") from None
        try:
            self._policy.load()
        except PolicyInvalid as error:
            raise SettingsInvalid(f"auth_policy: {error}") from None
        self._reload = asyncio.Event()

    async def subject_of(self, token: str) -> Subject:
        """Return the subject of a token.

        Raises:
            Problem: unauthenticated; not-ready while no keys could be had yet.
        """
        try:
            return self._verified(token)
        except KeyUnknown as error:
            if not self._keys.is_remote:
                raise refused(error) from None
        except TokenInvalid as error:
            raise refused(error) from None
        # The issuer may have a new key. One that anybody makes up is asked for now and then only.
        if await self._keys.refresh(is_wanted=True):
            self._verifier.forget()
        if not self._keys.keys.keys:
            raise Problem("not-ready", "The keys of the issuer cannot be had yet.")
        try:
            return self._verified(token)
        except TokenInvalid as error:
            raise refused(error) from None

    def _verified(self, token: str) -> Subject:
        policy = self._policy.policy
        found = self._verifier.subject(token, self._keys.keys, policy, self.now_ms())
        if policy.revokes(found):
            raise TokenInvalid("it is revoked")
        return found

    def redeemed(self, ticket: str, target: bytes) -> Subject:
        """Return the subject of a ticket, as the policy has it now.

        Raises:
            Problem: unauthenticated.
        """
        try:
            found = self.current(self.tickets.redeem(ticket, target, self.now_ms()))
        except TokenInvalid as error:
            raise refused(error) from None
        if found is None:
            raise unauthenticated("The token behind the ticket is revoked.")
        return found

    def current(self, subject: Subject) -> Subject | None:
        """Return the subject with the grants of the present policy; None if it is revoked."""
        policy = self._policy.policy
        if policy.revokes(subject) or subject.key_id not in self._keys.keys:
            return None
        return policy.applied(subject)

    def ending(self, subject: Subject, *, are_new: bool = True) -> CloseReason | None:
        """Return why a stream of this subject may not go on, or None.

        `are_new`: keys or policy may have changed since it began.
        """
        if self.now_ms() >= subject.expires_ms + SKEW_S * 1_000:
            return CloseReason.TOKEN_EXPIRED
        if are_new and self.current(subject) != subject:
            return CloseReason.REVOKED
        return None

    def reload(self) -> None:
        """Look at keys and policy at once, as SIGHUP asks."""
        self._reload.set()

    @asynccontextmanager
    async def watching(self, look: Look) -> AsyncIterator[None]:
        """Read changed keys and policies, and call `look` every second, while the block runs."""
        watching = asyncio.create_task(self._watch(look), name="look at keys and policy")
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    async def _watch(self, look: Look) -> None:
        while True:
            try:
                look(self, are_new=await self._refresh())
            except Exception:
                # The next look may succeed; without any, revoked subjects would go on for ever.
                logger.exception("keys and policy could not be looked at")
            self._reload.clear()
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._reload.wait()
            except TimeoutError:
                continue

    async def _refresh(self) -> bool:
        """Read keys and policy again where they have changed; return True if they have."""
        are_new = await self._keys.refresh()
        try:
            are_new = self._policy.refresh() or are_new
        except PolicyInvalid as error:
            figures = event("policy-not-read", reason=str(error))
            logger.warning("the policy stays as it is: %s", error, extra=figures)
        if are_new:
            self._verifier.forget()
            logger.info("keys or policy have changed", extra=event("access-changed"))
        return are_new


def csrf_proof(token: str) -> str:
    """Return what proves that a page has seen the answer to its login; made of the token alone.

    A page of another site can have the cookie sent, and can read neither the cookie nor this.
    """
    proof = hmac.digest(token.encode(), b"tidegate csrf", hashlib.sha256)
    return urlsafe_b64encode(proof).rstrip(b"=").decode()
