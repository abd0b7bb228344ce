"""Grants: what a subject may do with which topics, and which rows and fields it may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from tidegate.app.names import OWN_PREFIX, TopicPattern
from tidegate.app.refusals import Refused
from tidegate.keys.errors import KeysError
from tidegate.keys.filter import Filter, disjunction
from tidegate.keys.select import Select

READ: Final = "read"
WRITE: Final = "write"
ADMIN: Final = "admin"
OBSERVE: Final = "observe"
VERBS: Final = (READ, WRITE, ADMIN, OBSERVE)


CERTIFICATE_PREFIX: Final = "certificate:"
"""Prefix of the `sub` of a client certificate; the `sub` of a token never begins with it."""

GRANTS_MAX: Final = 256
"""Grants of one token, and of one claim's value: each topic is looked for in all of them."""
TEXT_CHARACTERS_MAX: Final = 4096


class GrantInvalid(ValueError):
    """A grant that cannot be used; `str()` says what was expected."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What may be done with the topics of a pattern; `filter` and `select` narrow reading.

    `select` is a list of the fields that may be seen: it begins with `-/` and adds.
    """

    topics: TopicPattern
    can: frozenset[str]
    filter: Filter | None = None
    select: Select | None = None

    @classmethod
    def parse(cls, document: object) -> Grant:
        """Parse `{"topics", "can", "filter", "select"}`, as in a token or in a policy file.

        Raises:
            GrantInvalid: anything that is not understood, as a grant must not mean more than it
                says.
        """
        if not isinstance(document, Mapping):
            raise GrantInvalid('expected a grant such as {"topics": "prices.>", "can": ["read"]}')
        unknown = sorted(str(name)[:64] for name in document.keys() - _FIELDS)
        if unknown:
            raise GrantInvalid(f"unknown field {unknown[0]!r}; known: {', '.join(_FIELDS)}")
        can = document.get("can")
        if not isinstance(can, list) or not can or not all(each in VERBS for each in can):
            raise GrantInvalid(f"can: expected a list of {', '.join(VERBS)}")
        rows, fields = document.get("filter"), document.get("select")
        if (rows is not None or fields is not None) and READ not in can:
            raise GrantInvalid("filter and select narrow reading, which the grant does not give")
        return cls(
            _pattern(document.get("topics")),
            frozenset(can),
            None if rows is None else _filter(rows),
            None if fields is None else _select(fields),
        )

    @classmethod
    def parse_text(cls, text: str) -> Grant:
        """Parse the spelling of the command line: `read,write prices.>`.

        Raises:
            GrantInvalid: it is none.
        """
        verbs, _, topics = text.strip().partition(" ")
        if len(topics.split()) != 1:
            raise GrantInvalid("expected verbs, and then topics, such as 'read,write prices.>'")
        return cls.parse({"topics": topics.strip(), "can": verbs.split(",")})

    def document(self) -> dict[str, object]:
        """Return the grant as tokens have it."""
        shown: dict[str, object] = {"topics": self.topics.text, "can": sorted(self.can)}
        if self.filter is not None:
            shown["filter"] = str(self.filter)
        if self.select is not None:
            shown["select"] = str(self.select)
        return shown


def parse_grants(documents: object) -> tuple[Grant, ...]:
    """Parse a list of grants.

    Raises:
        GrantInvalid: with the number of the one at fault.
    """
    if not isinstance(documents, list) or len(documents) > GRANTS_MAX:
        raise GrantInvalid(f"expected a list of at most {GRANTS_MAX} grants")
    grants = []
    for number, document in enumerate(documents, 1):
        try:
            grants.append(Grant.parse(document))
        except GrantInvalid as error:
            raise GrantInvalid(f"grant {number}: {error}") from None
    return tuple(grants)


@dataclass(frozen=True, slots=True)
class Entitlement:
    """The rows and the fields of a topic that may be seen; None is all of them."""

    filter: Filter | None = None
    select: Select | None = None

    @property
    def is_whole(self) -> bool:
        """True if nothing of the topic is hidden."""
        return self.filter is None and self.select is None


WHOLE: Final = Entitlement()


@dataclass(frozen=True, slots=True)
class Grants:
    """All grants of a subject, its own and those of the policy; they add up."""

    each: tuple[Grant, ...] = ()

    def may(self, verb: str, topic: str) -> bool:
        """Return True if any grant gives the verb for the topic."""
        return any(verb in grant.can and grant.topics.matches(topic) for grant in self.each)

    def documents(self) -> list[dict[str, object]]:
        """Return the grants as tokens have them."""
        return [grant.document() for grant in self.each]

    def may_anywhere(self, verb: str) -> bool:
        """Return True if any grant gives the verb."""
        return any(verb in grant.can for grant in self.each)

    @property
    def observes_all(self) -> bool:
        """True if figures of all topics together may be seen."""
        return any(OBSERVE in grant.can and grant.topics.text == ">" for grant in self.each)

    def observes(self, topics: Iterable[str]) -> bool:
        """Return True if what concerns all these topics and patterns may be seen.

        The gateway's own topics concern the whole of it, and not what others publish.
        """
        others = (topic for topic in topics if not topic.startswith(OWN_PREFIX))
        observed = [grant.topics for grant in self.each if OBSERVE in grant.can]
        return bool(observed) and all(any(it.covers(topic) for it in observed) for topic in others)

    def may_define(self, topic: str) -> bool:
        """Return True if the topic's definition and figures may be seen.

        Figures count hidden rows, and a schema names hidden fields.
        """
        entitlement = self.reading(topic)
        is_whole = entitlement is not None and entitlement.is_whole
        return is_whole or self.may(ADMIN, topic)

    def may_read(self, topic: str) -> bool:
        """Return True if the topic may be read, or some of it."""
        return self.may(READ, topic)

    def reading(self, topic: str) -> Entitlement | None:
        """Return what may be seen of a topic, or None for nothing."""
        found = [it for it in self.each if READ in it.can and it.topics.matches(topic)]
        return _added(tuple(found)) if found else None

    def required(self, topic: str) -> Entitlement:
        """Return what may be seen of a topic.

        Raises:
            Refused: forbidden, where that is nothing.
        """
        entitlement = self.reading(topic)
        if entitlement is None:
            raise forbidden(f"{READ} of this topic")
        return entitlement

    def require(self, verb: str, topic: str) -> None:
        """Refuse what no grant gives.

        Raises:
            Refused: forbidden. It is the same for a topic that does not exist, which must not be
                known either.
        """
        if not self.may(verb, topic):
            raise forbidden(f"{verb} of this topic")

    def require_whole(self, topic: str) -> None:
        """Refuse what would show hidden rows or fields of a topic.

        Raises:
            Refused: forbidden.
        """
        if not self.required(topic).is_whole:
            detail = "This needs all rows and fields of the topic, and the token hides some."
            raise Refused("forbidden", detail)


@dataclass(frozen=True, slots=True)
class Subject:
    """The bearer of a token or of a certificate, for as long as that and the policy hold.

    `own`: grants in the token. `values`: those of the claim that the policy maps to grants, and to
    `limits` in place of those of the settings. `key_id`, `token_id` and `token` say by what it can
    be revoked: the key, the `jti`, and the token itself. `certificate`: the name of one.
    """

    sub: str
    expires_ms: int
    grants: Grants
    own: tuple[Grant, ...] = ()
    values: tuple[str, ...] = ()
    key_id: str = ""
    token_id: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    certificate: str = ""
    # Not compared: other limits end no stream, they count for what comes next.
    limits: Mapping[str, int] | None = field(default=None, compare=False)


def forbidden(missing: str) -> Refused:
    """Return the refusal of a subject that lacks a grant."""
    return Refused("forbidden", f"The token does not grant {missing}.")


def check_reading(grants: Grants | None, target: str | TopicPattern) -> None:
    """Refuse to read a topic that is not granted, and a pattern where nothing is.

    Raises:
        Refused: forbidden.
    """
    if grants is None:
        return
    if isinstance(target, str):
        grants.require(READ, target)
    elif not grants.may_anywhere(READ):
        raise forbidden(f"{READ} of any topic")


def check_owner(subject: Subject | None, owner: str | None) -> None:
    """Refuse a session of somebody else as if it did not exist.

    Raises:
        Refused: session-unknown.
    """
    if subject is not None and owner is not None and owner != subject.sub:
        raise session_unknown()


def session_unknown() -> Refused:
    """Return the refusal of a session that does not exist, and of one of somebody else."""
    return Refused("session-unknown", "It has ended, or never was.")


@lru_cache(maxsize=4_096)
def _added(grants: tuple[Grant, ...]) -> Entitlement:
    # Cached, because each row of each answer may ask, and few sets of grants are in use.
    rows = [grant.filter for grant in grants]
    fields = [grant.select for grant in grants]
    return Entitlement(
        None if None in rows else disjunction(*(each for each in rows if each is not None)),
        None if None in fields else _union([each for each in fields if each is not None]),
    )


def _union(selects: list[Select]) -> Select:
    # Each begins with `-/` and adds, so their directives together are the union.
    return Select(tuple(dict.fromkeys(it for each in selects for it in each.directives)))


_FIELDS = ("topics", "can", "filter", "select")


def _pattern(value: object) -> TopicPattern:
    try:
        return TopicPattern.parse(_text(value, "topics"))
    except Refused as refusal:
        raise GrantInvalid(f"topics: {refusal.detail}") from None


def _filter(value: object) -> Filter:
    try:
        return Filter.parse(_text(value, "filter"))
    except KeysError as error:
        raise GrantInvalid(f"filter: {error.detail}") from None


def _select(value: object) -> Select:
    try:
        found = Select.parse(_text(value, "select"))
    except KeysError as error:
        raise GrantInvalid(f"select: {error.detail}") from None
    first, *others = found.directives
    # Only lists of what is shown: one of what is hidden would show every field added later, and
    # two such lists have no union.
    if first.keep or first.steps or not others or not all(it.keep and it.steps for it in others):
        raise GrantInvalid("select: expected the fields that are shown, such as [-/,+/id,+/px]")
    return found


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_CHARACTERS_MAX:
        raise GrantInvalid(f"{name}: expected a text")
    return value


def named_values(claims: Mapping[str, object], claim: str) -> tuple[str, ...]:
    """Return the texts of a claim; `/realm_access/roles` looks inside."""
    found: object = claims
    for step in claim.split("/")[1:] if claim.startswith("/") else [claim]:
        found = found.get(step) if isinstance(found, Mapping) else None
    values: Iterable[object] = found if isinstance(found, list) else (found,)
    return tuple(value for value in values if isinstance(value, str))
