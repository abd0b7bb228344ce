"""The policy file: grants and limits for the values of a claim, and what is revoked."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tidegate.app.access.grants import Grant, GrantInvalid, Grants, Subject, parse_grants
from tidegate.app.access.keys import KeysInvalid, read_file, stamp_of
from tidegate.app.access.limits.quota import LimitsInvalid, parse_limits, widest

FIELDS: Final = ("claim", "grants", "limits", "certificates", "revoked")


class PolicyInvalid(ValueError):
    """A policy that cannot be used; `str()` is one readable line."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Grants and limits by the values of `claim`, and grants by the names of client certificates.

    `revoked`: subjects (`sub`) and tokens (`jti`).
    """

    claim: str = ""
    grants: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    certificates: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: bytes) -> Policy:
        """Parse a policy in TOML.

        Raises:
            PolicyInvalid: with the place at fault.
        """
        try:
            document = tomllib.loads(text.decode("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PolicyInvalid(f"not valid TOML: {' '.join(str(error).split())}") from None
        unknown = sorted(document.keys() - set(FIELDS))
        if unknown:
            raise PolicyInvalid(f"unknown field {unknown[0]!r}; known: {', '.join(FIELDS)}")
        claim, grants = document.get("claim", ""), document.get("grants", {})
        revoked = document.get("revoked", [])
        limits = document.get("limits", {})
        if not isinstance(claim, str) or bool(claim) != bool(grants or limits):
            raise PolicyInvalid("claim: the name of a claim, next to the grants of its values")
        certificates = document.get("certificates", {})
        if not isinstance(grants, dict):
            raise PolicyInvalid("grants: a list of grants for each value of the claim")
        if not isinstance(certificates, dict):
            raise PolicyInvalid("certificates: a list of grants for each name")
        # An empty text would be equal to the `jti` of every token without one, and revoke them all.
        if not isinstance(revoked, list) or not all(it and isinstance(it, str) for it in revoked):
            raise PolicyInvalid("revoked: a list of sub or jti, none of them empty")
        return cls(
            claim,
            _parsed("grants", grants),
            _parsed("certificates", certificates),
            frozenset(revoked),
            _limits(limits),
        )

    def applied(self, subject: Subject) -> Subject:
        """Return the subject with its own grants and those of this policy."""
        mapped = [grant for value in subject.values for grant in self.grants.get(value, ())]
        mapped += self.certificates.get(subject.certificate, ())
        limits = widest(self.limits[value] for value in subject.values if value in self.limits)
        return replace(subject, grants=Grants((*subject.own, *mapped)), limits=limits or None)

    def revokes(self, subject: Subject) -> bool:
        """Return True if the subject or its token is revoked."""
        return subject.sub in self.revoked or subject.token_id in self.revoked


def _parsed(table: str, lists: Mapping[str, object]) -> dict[str, tuple[Grant, ...]]:
    found = {}
    for name, documents in lists.items():
        try:
            found[name] = parse_grants(documents)
        except GrantInvalid as error:
            raise PolicyInvalid(f"{table}.{name}: {error}") from None
    return found


def _limits(documents: object) -> dict[str, dict[str, int]]:
    if not isinstance(documents, dict):
        raise PolicyInvalid("limits: a table of limits for each value of the claim")
    found = {}
    for value, document in documents.items():
        try:
            found[value] = parse_limits(document)
        except LimitsInvalid as error:
            raise PolicyInvalid(f"limits.{value}: {error}") from None
    return found


class PolicySource:
    """The policy in a file; it keeps the last good one while the file cannot be used."""

    def __init__(self, path: Path | None) -> None:
        self.policy = Policy()
        self._path = path
        self._stamp: object = None

    def load(self) -> None:
        """Read the file.

        Raises:
            PolicyInvalid: it cannot be read or used.
        """
        if self._path is None:
            return
        self._stamp = stamp_of(self._path)
        try:
            self.policy = Policy.parse(read_file(self._path))
        except KeysInvalid as error:
            raise PolicyInvalid(str(error)) from None

    def refresh(self) -> bool:
        """Read a file that has changed; return True if the policy has.

        Raises:
            PolicyInvalid: it cannot be used; the policy stays.
        """
        if self._path is None or stamp_of(self._path) == self._stamp:
            return False
        before = self.policy
        self.load()
        return self.policy != before
