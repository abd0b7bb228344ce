"""How much of a message a filter may look at: what is allowed is shared by all that look."""

from __future__ import annotations

from dataclasses import dataclass

from keys.filter.patterns import compiled
from keys.filter.tree import Affix, Call, Field, Like, Literal, Node, children, walk

BRACKETS_MAX = 12_000
# a string that is read as a number costs as much as this many elements
READING_COST = 4
_ELEMENTS = 12_000
_ITEMS = 8
_TEXT_BYTES = 40_000
_TEXT_BYTES_MAX = 8_192
_SOUGHT_BYTES = 100_000
_PATTERN_WORK = 750_000
_REPLACING_COST = 2_000
_TEXTS_ONE_BY_ONE = 1_000
_SEEKING = frozenset({"INSTR", "INSTR_I", "STREQUAL_I"})
_WRITING = frozenset(
    {
        *("TRIM", "LTRIM", "RTRIM", "REVERSE", "UPPER", "LOWER", "CONCAT", "REPLACE", "MD5"),
        *("CRC32", "ARRAY_TO_STRING", "REGEXP_REPLACE", "STRPTIME"),
    }
)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one of a filter's places may look at at most (rule 104).

    `elements` of an array, arrays in it and their elements included; `text_bytes` of a text for
    functions that write one, `sought_bytes` for those that seek in it; `pattern_bytes` for
    regular expressions, which look at `pattern_texts` of an array if it must be one by one.
    """

    elements: int
    text_bytes: int
    sought_bytes: int
    pattern_bytes: int
    pattern_texts: int

    @classmethod
    def of(cls, tree: Node) -> Allowance:
        """The allowance of a filter; a subtree that stands twice is evaluated once."""
        nodes = set(walk(tree))
        called = [node.name for node in nodes if isinstance(node, Call)]
        seeking = sum(name in _SEEKING or name in _WRITING for name in called)
        patterns = [pattern for node in nodes if (pattern := _pattern(node)) is not None]
        instructions = sum(compiled(pattern).programsize for pattern in patterns)
        instructions += _REPLACING_COST * called.count("REGEXP_REPLACE")
        return cls(
            elements=_ELEMENTS // max(sum(map(_looks, nodes)), 1),
            text_bytes=min(_TEXT_BYTES // max(seeking, 1), _TEXT_BYTES_MAX),
            sought_bytes=_SOUGHT_BYTES // max(seeking, 1),
            pattern_bytes=_PATTERN_WORK // max(instructions, 1),
            pattern_texts=_TEXTS_ONE_BY_ONE // max(len(patterns), 1),
        )


def _looks(node: Node) -> int:
    """How often a node looks at arrays: once for each of its paths, or for some affixes."""
    paths = sum(isinstance(child, Field) for child in set(children(node)))
    if isinstance(node, Affix) and isinstance(node.value, Field):
        return paths + (len(node.items) - 1) // _ITEMS
    return paths


def _pattern(node: Node) -> str | None:
    match node:
        case Like(_, pattern):
            return pattern
        case Call("REGEXP_MATCH" | "REGEXP_REPLACE", (_, Literal(str(pattern)), *_)):
            return pattern
    return None
