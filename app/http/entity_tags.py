"""Entity tags in the conditions of a request (RFC 9110, sections 8.8.3 and 13.1)."""

from __future__ import annotations

import re
from typing import Final

from tidegate.app.refusals import Refused
from tidegate.app.topics.registry import ANY

_TAG: Final = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS: Final = re.compile(rf"[ \t,]*{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*[ \t,]*")
_CODED_TAG: Final = re.compile(r'-(?:gzip|br|zstd|deflate)"$')


def names_entity_tag(header: str, tag: str) -> bool:
    """Return whether the If-None-Match of a GET names a tag; `*` names each (RFC 9110, 13.1.2)."""
    named = [part.strip() for part in header.split(",")]
    return named == [ANY] or _as_given(tag) in map(_as_given, named)


def entity_tags(header: str | None) -> list[str] | None:
    """Return the entity tags that the condition of a change names, or `*` alone; None without one.

    RFC 9110 allows `*` or a list. A mixture of both is refused rather than guessed.

    Raises:
        Refused: precondition-failed.
    """
    if header is None:
        return None
    if header.strip(" \t") == ANY:
        return [ANY]
    if _TAGS.fullmatch(header) is None:
        detail = "If-Match and If-None-Match are * or a list of entity tags in quotes."
        raise Refused("precondition-failed", detail)
    return [_as_given(tag) for tag in re.findall(_TAG, header)]


def _as_given(tag: str) -> str:
    """Return the tag that the gateway gave, whatever a proxy that compresses answers made of it.

    nginx and HAProxy make it weak; Apache ("DeflateAlterETag AddSuffix", its default) and Caddy
    append the coding. No tag of the gateway's ends so.
    """
    return _CODED_TAG.sub('"', tag.removeprefix("W/"))
