"""The reference table of filter functions.

`python -m tests.docs.filter_functions > docs/semantics/functions.md` writes the page. Names and
numbers of arguments come from `keys.filter.calls`, values of examples from the evaluator.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from tests.docs.filter_examples import Example, answer
from tidegate.keys.filter.calls import SIGNATURES, Signature

INTRODUCTION = """\
# Filter functions

`python -m tests.docs.filter_functions > docs/semantics/functions.md` writes this page. A NULL
argument makes the result NULL, unless the table says otherwise
([filter-15](filters.md#filter-15)); an argument above its allowance makes it NULL as well
([filter-4](filters.md#filter-4)). Positions and lengths count bytes. `n` is cut toward zero; NaN
and infinities as `n` give NULL.
"""

HEADING = """\
| function | result |
|---|---|"""


class Function(NamedTuple):
    """How a function is called, what it answers, and an example."""

    parameters: str
    result: str
    example: str


GROUPS: dict[str, dict[str, Function]] = {
    "Texts": {
        "LENGTH": Function("text", "bytes of the text", "LENGTH('abc')"),
        "LEFT": Function("text, n", "the first n bytes; NULL for n below 1", "LEFT('abc', 2)"),
        "RIGHT": Function("text, n", "the last n bytes; NULL for n below 1", "RIGHT('abc', 2)"),
        "SUBSTR": Function(
            "text, start [, n]",
            "n bytes from byte `start`: 1 or 0 is the first, -n is n bytes before the end",
            "SUBSTR('fandango', -3, 2)",
        ),
        "INSTR": Function("text, part", "position of `part` from 1, or 0", "INSTR('abc', 'c')"),
        "INSTR_I": Function("text, part", "the same without ASCII case", "INSTR_I('abc', 'C')"),
        "STREQUAL_I": Function("a, b", "whether equal but for ASCII case", "STREQUAL_I('a', 'A')"),
        "TRIM": Function("text", "without white space at both ends", "TRIM(' a ')"),
        "LTRIM": Function("text", "without white space at the left", "LTRIM(' a ')"),
        "RTRIM": Function("text", "without white space at the right", "RTRIM(' a ')"),
        "REVERSE": Function("text", "the bytes in reverse order", "REVERSE('abc')"),
        "UPPER": Function("text", "in ASCII capitals", "UPPER('abc')"),
        "LOWER": Function("text", "in ASCII small letters", "LOWER('ABC')"),
        "CONCAT": Function("text, …", "the texts joined; skips NULL", "CONCAT('a', NULL, 1)"),
        "REPLACE": Function(
            "text, old, new",
            "every `old` replaced, from the left; a NULL `new` is the empty text",
            "REPLACE('aab', 'a', 'x')",
        ),
        "REGEXP_MATCH": Function(
            "text, pattern",
            "as `LIKE`, on the first element of an array",
            "REGEXP_MATCH('abc', 'b.')",
        ),
        "REGEXP_REPLACE": Function(
            "text, pattern, new",
            r"every match replaced; `\0` is the match, `\1` to `\9` its groups",
            r"REGEXP_REPLACE('abc', 'b(.)', r'\1')",
        ),
        "MD5": Function("text", "32 hexadecimal digits", "MD5('abc')"),
        "CRC32": Function("text", "zlib's unsigned integer", "CRC32('abc')"),
        "CHAR_VALUE": Function("n", "the byte n; NULL outside 0 to 255", "CHAR_VALUE(65)"),
    },
    "Numbers": {
        "ABS": Function("x", "the absolute value", "ABS(-2)"),
        "SIGN": Function("x", "-1, 0 or 1; NaN for NaN", "SIGN(-2.5)"),
        "CEILING": Function("x", "the next integer up", "CEILING(1.2)"),
        "FLOOR": Function("x", "the next integer down", "FLOOR(-1.2)"),
        "ROUND": Function(
            "x [, n]",
            "n decimals (0; -30 to 30), halves away from zero; an integer for n of 0 or less",
            "ROUND(2.345, 2)",
        ),
        "GREATEST": Function("a, …", "the first greatest; skips NULL", "GREATEST(1, NULL, 3)"),
        "LEAST": Function("a, …", "the first least; skips NULL", "LEAST(2, 1)"),
        "WIDTH_BUCKET": Function(
            "x, low, high, n",
            "the bucket of x, 1 to n; 0 below `low`, n + 1 from `high` on (below)",
            "WIDTH_BUCKET(5, 0, 10, 4)",
        ),
        "EXP": Function("x", "e to the power of x", "EXP(0)"),
        "LN": Function("x", "natural logarithm; -Infinity for 0", "LN(1)"),
        "LOG2": Function("x", "logarithm to base 2; -Infinity for 0", "LOG2(8)"),
        "LOG10": Function("x", "logarithm to base 10; -Infinity for 0", "LOG10(100)"),
        "POWER": Function(
            "x, y", "x to the power of y; Infinity for a negative of 0", "POWER(2, 3)"
        ),
        "SQRT": Function("x", "square root; NaN below 0", "SQRT(9)"),
        "RADIANS": Function("x", "degrees to radians", "RADIANS(0)"),
        "DEGREES": Function("x", "radians to degrees", "DEGREES(0)"),
        "SIN": Function("x", "sine", "SIN(0)"),
        "COS": Function("x", "cosine", "COS(0)"),
        "TAN": Function("x", "tangent", "TAN(0)"),
        "COT": Function("x", "cotangent; Infinity for 0", "COT(0)"),
        "ASIN": Function("x", "inverse sine; NaN outside -1 to 1", "ASIN(2)"),
        "ACOS": Function("x", "inverse cosine; NaN outside -1 to 1", "ACOS(1)"),
        "ATAN": Function("x", "inverse tangent", "ATAN(0)"),
        "ATAN2": Function("y, x", "the angle of the point (x, y)", "ATAN2(0, 1)"),
        "SINH": Function("x", "hyperbolic sine; Infinity on overflow", "SINH(0)"),
        "COSH": Function("x", "hyperbolic cosine", "COSH(0)"),
        "TANH": Function("x", "hyperbolic tangent", "TANH(0)"),
        "GEO_DISTANCE": Function(
            "lat1, lon1, lat2, lon2",
            "meters between two points in degrees (haversine, R = 6,371,008.8 m)",
            "ROUND(GEO_DISTANCE(0, 0, 0, 1))",
        ),
        "NAN_VALUE": Function("", "NaN", "NAN_VALUE()"),
    },
    "Conditions": {
        "COALESCE": Function("a, …", "the first that is not NULL", "COALESCE(NULL, 2)"),
        "IF": Function("condition, a, b", "a if the condition is TRUE, else b", "IF(NULL, 1, 2)"),
        "TRUE_VALUE": Function("", "TRUE", "TRUE_VALUE()"),
        "FALSE_VALUE": Function("", "FALSE", "FALSE_VALUE()"),
    },
    "Arrays": {
        "ARRAY_COUNT": Function(
            "x", "elements, NULLs included; 0 for NULL, 1 for a scalar or object", "ARRAY_COUNT(7)"
        ),
        "ARRAY_MAX": Function("x", "`GREATEST` of the elements", "ARRAY_MAX(7)"),
        "ARRAY_MIN": Function("x", "`LEAST` of the elements", "ARRAY_MIN(7)"),
        "ARRAY_SUM": Function(
            "x", "the sum of the elements; skips NULL and objects; NULL for none", "ARRAY_SUM('7')"
        ),
        "ARRAY_TO_STRING": Function(
            "x, separator [, null]",
            "texts joined; a NULL or object becomes `null`, without it is skipped",
            "ARRAY_TO_STRING(7, ',')",
        ),
    },
    "Times": {
        "STRFTIME": Function(
            "format, seconds",
            "the time in UTC as text; NULL outside the years 1 to 9999",
            "STRFTIME('%F %T', 0)",
        ),
        "STRPTIME": Function(
            "text, format",
            "seconds of the epoch; NULL unless the whole text fits and is a date",
            "STRPTIME('1970-01-02', '%F')",
        ),
    },
    "The message": {
        "TOPIC_NAME": Function("", "the topic; NULL where unknown", "TOPIC_NAME()"),
        "MESSAGE_SIZE": Function("", "bytes of the JSON text", "MESSAGE_SIZE()"),
        "SOW_KEY": Function("", "the key of the record as text; NULL where unknown", "SOW_KEY()"),
    },
}

NOTES = {
    "Texts": """\
`REGEXP_REPLACE` replaces from the left, not overlapping, and no empty match right after a match.
A NULL `new` is the empty text. In `new` another `\\c` is c, and a lone last backslash itself.
`INSTR`, `SUBSTR` and the like count bytes of UTF-8; where a result cuts a character, U+FFFD
stands for it. White space is space and `\\t \\n \\v \\f \\r`.
""",
    "Numbers": """\
`ABS` to `ROUND` keep integers. Halves are those of a double's shortest digits; a result of
`ROUND` outside 64 bits is a double; NaN and infinities stay. `GREATEST` and `LEAST` compare by
[filter-11](filters.md#filter-11) and keep the value as it was. `WIDTH_BUCKET` is floor((x - low)
/ (high - low) * n) + 1, at most n; with `low` above `high` the order is reversed; NULL for n
below 1, equal or infinite bounds, and NaN. All others take and give doubles as C99 does.
""",
    "Arrays": """\
A NULL separator is the empty text. Elements are those of the flat array
([filter-8](filters.md#filter-8)); a scalar is an array of one. `ARRAY_SUM` adds from left to
right.
""",
    "Times": """\
Seconds are cut down to microseconds. A format knows these directives, names in English; others
are refused:

| directive | `STRFTIME` | `STRPTIME` |
|---|---|---|
| `%Y` | four digits | four digits; without one, 1970 |
| `%m` `%d` `%H` `%M` `%S` `%I` | two digits | one or two; `%S` at most 59 |
| `%y` | two digits | one or two; 69 to 99 is 19.., else 20.. |
| `%j` | three digits | one to three; replaces month and day |
| `%f`, `%03f` | six digits, three (cut) | one to six, a fraction |
| `%b` `%B` `%a` `%A` | names, short or whole | the same, in any case; weekdays are not checked |
| `%p` | `AM`, `PM` | counts only with `%I`; `%I` without it is the morning |
| `%s` | seconds of the epoch | `-`, one to twelve digits; replaces all but `%f` |
| `%z`, `%Z` | `+0000`, `UTC` | `Z`, `+hh:mm` or `+hhmm`; `UTC`, `GMT` or `Z` |
| `%F`, `%T`, `%R` | `%Y-%m-%d`, `%H:%M:%S`, `%H:%M` | the same |
| `%%` | `%` | `%` |

In `STRPTIME` white space fits any run of it, also none. A missing field is January, the first,
midnight. A repeated directive counts at its last place.
""",
}


def functions() -> dict[str, Function]:
    """Return all functions of the page by name."""
    return {name: found for group in GROUPS.values() for name, found in group.items()}


def arguments(parameters: str, signature: Signature) -> tuple[int, int]:
    """Return the least and greatest number of arguments that a list of parameters shows."""
    names = [name for name in parameters.replace("[, ", ", [").split(", ") if name]
    if "…" in names:
        return len(names) - 1, signature.most
    return sum(not name.startswith("[") for name in names), len(names)


def page() -> str:
    """Return the whole page."""
    return "\n".join([INTRODUCTION, *_sections()])


def _sections() -> Iterator[str]:
    for title, group in GROUPS.items():
        yield f"## {title}\n\n{HEADING}"
        yield from (
            f"| `{name}({found.parameters})` | {found.result} |" for name, found in group.items()
        )
        yield "\n```filter"
        yield from (_example(found.example) for found in group.values())
        yield "```\n"
        if title in NOTES:
            yield NOTES[title]


def _example(text: str) -> str:
    return f"{text}  =>  {answer(Example(text, '', '{}'))}"


def main() -> None:
    """Print the page."""
    assert functions().keys() == SIGNATURES.keys(), functions().keys() ^ SIGNATURES.keys()
    sys.stdout.write(page())


if __name__ == "__main__":
    main()
