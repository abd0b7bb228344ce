"""LIKE and REGEXP_... by Python's `re`: only for patterns that mean the same there and in RE2."""

from __future__ import annotations

import re
from dataclasses import dataclass

import re2

from tests.keys.filter.oracle.reading import Refused

# Python's `$` looks past a last line break, and its classes know all alphabets; RE2's do not.
AS_RE2 = {"$": r"\Z", r"\d": "[0-9]", r"\w": "[0-9A-Za-z_]", r"\s": r"[\t\n\f\r ]"}


@dataclass(frozen=True)
class Pattern:
    """A pattern as Python has it, and how many instructions it is for RE2."""

    source: str
    compiled: re.Pattern[str]
    instructions: int


def checked_pattern(pattern: bytes) -> Pattern:
    """The pattern compiled."""
    source = pattern.decode()
    text = re.sub(r"\\.|\[[^\]]*\]|\$", lambda m: AS_RE2.get(m.group(), m.group()), source)
    try:
        return Pattern(source, re.compile(text), re2.compile(source).programsize)
    except (re.error, re2.error) as error:
        raise Refused("not a pattern") from error


def array_bytes(texts: list[bytes]) -> int:
    """What the elements of an array count as (rule filter-4)."""
    return sum(map(len, set(texts))) + len(set(texts)) + 1


def characters(text: bytes) -> str:
    """Bytes as characters; those that are no UTF-8 are U+FFFD (rule filter-13)."""
    return text.decode(errors="replace")


def found(pattern: Pattern, text: bytes) -> bool:
    """Whether the pattern stands anywhere in the text (rule filter-13)."""
    return pattern.compiled.search(characters(text)) is not None


def replaced(pattern: Pattern, text: bytes, new: bytes) -> bytes:
    """Every match replaced, from the left; no empty match right after a match (rule filter-15)."""
    subject, template = characters(text), characters(new)
    out, at, last_end = "", 0, -1
    while match := pattern.compiled.search(subject, at):
        out += subject[at : match.start()]
        if match.end() > match.start() or match.start() != last_end:
            out += _filled(template, match)
            last_end = at = match.end()
        if match.end() == match.start():
            out += subject[match.end() : match.end() + 1]
            at = match.end() + 1
        if at > len(subject):
            break
    return (out + subject[at:]).encode()


def _filled(template: str, match: re.Match[str]) -> str:
    """The template with `\\0` to `\\9` filled in."""
    out, at = "", 0
    while at < len(template):
        character = template[at]
        at += 1
        if character == "\\" and at < len(template):
            character = template[at]
            at += 1
            if character in "0123456789":
                group = int(character)
                character = (match.group(group) or "") if group <= match.re.groups else ""
        out += character
    return out
