"""Access to one gateway: its keys, its policy, and who asks."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tidegate.app.access.certificate import ClientCertificate
from tidegate.app.access.grants import CERTIFICATE_PREFIX, Grants, Subject
from tidegate.app.access.keys import KeysInvalid, KeySource
from tidegate.app.access.login.oidc import Provider
from tidegate.app.access.outbound import is_safe
from tidegate.app.access.policy import PolicyInvalid, PolicySource
from tidegate.app.access.revocations import Revocations
from tidegate.app.access.tickets import Tickets, packed, unpacked
from tidegate.app.access.tokens import (
    SKEW_S,
    Issuer,
    KeyUnknown,
    TokenInvalid,
    Verifier,
    unauthenticated,
)
from tidegate.app.logs import event
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings, SettingsInvalid
from tidegate.app.timers import wait_until_set, wall_ms
from tidegate.conflation.outputs import CloseReason

logger = logging.getLogger("tidegate.access")

ASK_AGAIN_S: Final = 10
"""How soon a client asks again while there are no keys: the issuer is asked no more often."""

CHECK_EVERY_S: Final = 1.0
"""How soon a change of keys or policy, and the end of a token, reach streams that run."""


ASKED_AT_ONCE: Final = 16
"""Tickets about which other gateways are asked at once."""

Ask = Callable[[str, bytes], Awaitable[bytes]]
"""Asks a gateway, and returns its answer: empty if it is not there."""


class StreamCheck(Protocol):
    """Checks the running streams, once a second."""

    def __call__(self, access: Access, *, are_new: bool, are_revoked: bool) -> None:
        """End the streams whose subjects may not read them any more.

        `are_new`: keys or policy have changed since the last look; `are_revoked`: revocations.
        """


class Access:
    """Authenticates requests; reads keys and policy again when they change.

    Raises:
        SettingsInvalid: keys or policy cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], int] = wall_ms,
        revocations: Revocations | None = None,
    ) -> None:
        assert settings.auth_keys is not None
        self._revocations = revocations
        self.tickets = Tickets()
        self._ask: Ask | None = None
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)
        self.now_ms = clock
        self._verifier = Verifier(Issuer(settings.auth_issuer, (settings.auth_audience,)))
        self._login_verifier = self._verifier
        self.provider: Provider | None = None
        if settings.auth_oidc_client_id is not None:
            if not is_safe(settings.auth_issuer):
                raise SettingsInvalid("auth_issuer: expected an https address")
            self.provider = Provider(settings)
            # An ID token is for the client that asked for it. It proves who is there and is no key
            # to an API: it counts in the cookie of its login, and in no header.
            audiences = (settings.auth_audience, settings.auth_oidc_client_id)
            self._login_verifier = Verifier(Issuer(settings.auth_issuer, audiences))
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
        self._changes = 0  # of keys and policy
        self._looked_at = self._state()
        self.on_change: Callable[[str, str], None] = lambda what, detail: None

    async def subject_of(self, token: str, *, is_login: bool = False) -> Subject:
        """Return the subject of a token.

        `is_login`: it is of a login, and may be an ID token.

        Raises:
            Refused: unauthenticated; not-ready while no keys could be had yet.
        """
        verifier = self._login_verifier if is_login else self._verifier
        try:
            return self._verified(token, verifier)
        except KeyUnknown:
            if not self._keys.is_remote:
                raise
        # The issuer may have a new key. One that anybody makes up is asked for now and then only.
        if await self._keys.refresh(is_wanted=True):
            self._forget("keys")
        if not self._keys.keys.keys:
            detail = "The keys of the issuer cannot be had yet."
            raise Refused("not-ready", detail, retry_after_s=ASK_AGAIN_S)
        return self._verified(token, verifier)

    def known_subject(self, token: str) -> Subject:
        """Return the subject of a token whose key is known here.

        Raises:
            Refused: unauthenticated, also where the issuer may have a newer key.
        """
        return self._verified(token, self._verifier)

    def _verified(self, token: str, verifier: Verifier) -> Subject:
        found = verifier.subject(token, self._keys.keys, self._policy.policy, self.now_ms())
        if self._revokes(found):
            raise TokenInvalid("it is revoked")
        return found

    def subject_of_certificate(self, certificate: ClientCertificate) -> Subject | None:
        """Return the subject of a certificate that TLS has verified; None if no policy names it.

        Raises:
            Refused: unauthenticated; it is revoked, or has expired since the connection began.
        """
        policy = self._policy.policy
        if certificate.name not in policy.certificates:
            return None
        found = policy.applied(
            Subject(
                f"{CERTIFICATE_PREFIX}{certificate.name}",
                certificate.expires_ms,
                Grants(),
                certificate=certificate.name,
            )
        )
        if self._revokes(found) or self.ending(found, are_new=False) is not None:
            raise unauthenticated("The client's certificate is revoked or has expired.")
        return found

    def _forget(self, what: str) -> None:
        """Verify every token again, and check running streams: keys or policy have changed."""
        self._verifier.forget()
        self._login_verifier.forget()
        self._changes += 1
        logger.info("%s changed", what, extra=event("access-changed"))
        self.on_change("access-changed", "")

    def share_tickets(self, gateway: str, ask: Ask) -> Callable[[bytes], Awaitable[bytes]]:
        """Ask other gateways for their tickets, and return what answers them about this one's."""
        self.tickets.gateway, self._ask = gateway, ask
        return self._redeem_for_another

    async def _redeem_for_another(self, text: bytes) -> bytes:
        ticket, target = msgspec.msgpack.decode(text, type=tuple[str, bytes])
        with suppress(TokenInvalid):
            return packed(self.tickets.redeem(ticket, target, self.now_ms()))
        return b""

    async def _issued_to(self, ticket: str, target: bytes) -> Subject:
        issuer = ticket.partition(".")[0] if "." in ticket else ""
        if self._ask is None or issuer in ("", self.tickets.gateway):
            return self.tickets.redeem(ticket, target, self.now_ms())
        # Anybody may make one up: few of them at once are a message to another gateway.
        async with self._asking:
            found = await self._ask(issuer, msgspec.msgpack.encode((ticket, target)))
        if not found:
            raise TokenInvalid("the ticket is not valid")
        return unpacked(found)

    async def redeemed(self, ticket: str, target: bytes) -> Subject:
        """Return the subject of a ticket, as the policy has it now; its issuer is asked for it.

        Raises:
            Refused: unauthenticated; bus-unavailable, where the issuer cannot be asked.
        """
        found = self.current(await self._issued_to(ticket, target))
        if found is None:
            raise unauthenticated("The token behind the ticket is revoked.")
        return found

    def current(self, subject: Subject) -> Subject | None:
        """Return the subject with the grants of the present policy; None if it is revoked."""
        policy = self._policy.policy
        if self._revokes(subject):
            return None
        is_known = (
            subject.certificate in policy.certificates
            if subject.certificate
            else subject.key_id in self._keys.keys
        )
        if not is_known:
            return None
        return policy.applied(subject)

    def _revokes(self, subject: Subject) -> bool:
        if self._policy.policy.revokes(subject):
            return True
        return self._revocations is not None and self._revocations.revokes(subject)

    def ending(self, subject: Subject, *, are_new: bool = True) -> CloseReason | None:
        """Return why a stream of this subject may not go on, or None.

        `are_new`: keys or policy may have changed since it began. Revocations are always asked:
        that is cheap, and a logout of one subject must not have all others verified again.
        """
        if self.now_ms() >= subject.expires_ms + SKEW_S * 1_000:
            return CloseReason.TOKEN_EXPIRED
        if self._revokes(subject) or (are_new and self.current(subject) != subject):
            return CloseReason.REVOKED
        return None

    async def log_out(self, token: str) -> Subject | None:
        """Void the token of a login at every gateway; None for one that opens nothing anyway.

        Raises:
            Refused: not-ready, bus-unavailable; the token may still hold.
        """
        try:
            subject = await self.subject_of(token, is_login=True)
        except Refused as refusal:
            if refusal.code != "unauthenticated":
                raise
            return None
        if self._revocations is not None:
            await self._revocations.log_out(subject)
        return subject

    def reload(self) -> None:
        """Check keys and policy at once, as SIGHUP asks."""
        self._reload.set()

    @asynccontextmanager
    async def watching(self, check: StreamCheck) -> AsyncIterator[None]:
        """Read changed keys and policies, and call `check` every second, while the block runs."""
        tasks = [asyncio.create_task(self._watch(check), name="check keys and policy")]
        if self._keys.is_remote:
            # By itself: an issuer that is slow to answer must not keep revoked subjects going.
            tasks.append(asyncio.create_task(self._watch_address(), name="ask for keys"))
        if self._revocations is not None:
            # By itself, too: a store that is slow must not keep revoked subjects going either.
            work = self._remove_expired(self._revocations)
            tasks.append(asyncio.create_task(work, name="remove logouts that are over"))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, check: StreamCheck) -> None:
        while True:
            try:
                self._refresh()
                (changes, revoked), seen = self._looked_at, self._state()
                self._looked_at = -1, None  # a look that fails leaves all to the next one
                check(self, are_new=seen[0] != changes, are_revoked=seen[1] != revoked)
                self._looked_at = seen
            except Exception:
                # The next check may succeed. Without one, revoked subjects would keep streams.
                logger.exception("keys and policy could not be checked")
            await wait_until_set(self._reload, CHECK_EVERY_S)

    async def _watch_address(self) -> None:
        while True:
            try:
                if await self._keys.refresh():
                    self._forget("keys")
            except Exception:
                logger.exception("the keys could not be asked for")
            await asyncio.sleep(CHECK_EVERY_S)

    async def _remove_expired(self, revocations: Revocations) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                await revocations.remove_expired(self.now_ms())
            except Refused:
                # The store is out, which is logged elsewhere, and records may stay longer.
                continue
            except Exception:
                logger.exception("logouts that are over could not be removed")

    def _state(self) -> tuple[int, object]:
        return self._changes, None if self._revocations is None else self._revocations.version()

    def _refresh(self) -> None:
        """Read files that have changed again."""
        has_changed = self._keys.refresh_file()
        try:
            has_changed = self._policy.refresh() or has_changed
        except PolicyInvalid as error:
            figures = event("policy-not-read", reason=str(error))
            logger.warning("the policy stays as it is: %s", error, extra=figures)
            self.on_change("policy-not-read", str(error))
        if has_changed:
            self._forget("keys or policy")


def csrf_proof(token: str) -> str:
    """Return what proves that a page has seen the answer to its login; made of the token alone.

    A page of another site can have the cookie sent, and can read neither the cookie nor this.
    """
    proof = hmac.digest(token.encode(), b"tidegate csrf", hashlib.sha256)
    return urlsafe_b64encode(proof).rstrip(b"=").decode()
