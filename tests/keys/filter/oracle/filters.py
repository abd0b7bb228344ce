"""Random filters as text: words of the grammar with odd spacing and needless parentheses."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from tests.keys.filter.oracle.messages import NUMBERS, WORDS

PATHS: tuple[str, ...] = (
    "/a",
    "/b",
    "/c",
    "/d",
    "/e",
    "/l",
    "/m",
    "/l[0]",
    "/m[1]",
    "/o",
    "/o/a",
    "/o/b",
    "/o/l",
)
PATHS += ("/l/a", "/m/b", "/l/a/b", "/l/l[0]", "/l[0]/a", "/o/l/a", "/@t", "/a-1", "[/a b]", "/é")
PATHS += ("[/o/a]", "$.a", "$.o.b", "$.l[0]", "$['a b']", '$.o["l"]', "$[0].a", "/u", "/nowhere")
PATHS += ("/m/o/p", "/o/o/a", "/l[2]", "/l[0][0]", "/l/p[1]")
COMMON_PATHS = ("/a", "/b", "/c", "/d", "/e", "/u", "/l", "/m", "/l[0]", "/o/a", "$.a", "[/a b]")
COUNTS = ("0", "1", "2", "3", "4", "7", "100", "1.5", "'2'", "'3.9'", "/a", "/b")
PATTERNS: tuple[str, ...] = (
    "a",
    "abc",
    "^a",
    "c$",
    "b+",
    "a.c",
    "[0-9]+",
    "(?i)abc",
    "^$",
    "",
    "x|a",
    "(a|b)c?",
)
PATTERNS += ("[^a]", r"\\d", "é", "^.$", "^..$", "(?i)É", "a*", "b{1,2}", r"\\.", "(a)(b)?", "X")
FORMATS: tuple[str, ...] = (
    "%Y-%m-%d",
    "%H:%M:%S",
    "%F",
    "%FT%T",
    "%s",
    "%Y %j",
    "%y%m%d",
    "%b %d %Y %I:%M %p",
)
FORMATS += (
    "%A %B %d",
    "%T.%f",
    "%T.%03f",
    "%a %z %Z %%",
    "%F %R",
    "%s.%f",
    "%Y%m%dT%H%M%S%z",
    "x%Y",
)
COMPARISONS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=")
# What each function takes: x anything, s mostly text, n mostly a number, k mostly a small one, c a
# condition, a mostly an array, p a pattern, f a format; capitals for what may be left out.
ALIKE = {
    "s": "LENGTH TRIM LTRIM RTRIM REVERSE UPPER LOWER MD5 CRC32",
    "n": "ABS SIGN CEILING FLOOR EXP LN LOG2 LOG10 SQRT RADIANS DEGREES SIN COS TAN COT ASIN ACOS"
    " ATAN SINH COSH TANH CHAR_VALUE",
    "a": "ARRAY_COUNT ARRAY_MAX ARRAY_MIN ARRAY_SUM",
    "ss": "INSTR INSTR_I STREQUAL_I",
    "": "TRUE_VALUE FALSE_VALUE NAN_VALUE TOPIC_NAME MESSAGE_SIZE SOW_KEY",
    "sk": "LEFT RIGHT",
    "nk": "POWER ATAN2",
    "xXXX": "GREATEST LEAST COALESCE",
}
TAKES = {name: kinds for kinds, names in ALIKE.items() for name in names.split()} | {
    "CONCAT": "sSXX",
    "SUBSTR": "skK",
    "REPLACE": "sss",
    "REGEXP_REPLACE": "sps",
    "REGEXP_MATCH": "sp",
    "ROUND": "nK",
    "WIDTH_BUCKET": "nkkk",
    "GEO_DISTANCE": "nkkk",
    "ARRAY_TO_STRING": "asS",
    "IF": "cxx",
    "STRFTIME": "fn",
    "STRPTIME": "st",
}
TIMES = {  # texts with the formats that they nearly or really have
    "%Y-%m-%d": ("2024-02-29", "2023-02-29", "1969-1-1", "0000-01-01", "9999-12-31", "2024-02-29 "),
    "%H:%M:%S": ("12:30:05", "24:00:00", "1:2:3", "12:30:60", "12:30"),
    "%FT%T": ("2024-02-29T12:30:05", "1970-01-01T00:00:00", "1900-12-31T23:59:59"),
    "%T.%f": ("23:59:59.5", "00:00:00.000001", "1:1:1.1234567", "12:00:00."),
    "%T.%03f": ("23:59:59.123", "23:59:59.123456"),
    "%b %d %Y %I:%M %p": ("Feb 29 2024 12:01 pm", "feb 1 2024  12:59 AM", "FEB 29 2024 13:00 pm"),
    "%A %B %d": ("monday March 1", "Sunday May 31", "Sun May 31", "Sunday June 31"),
    "%a, %d %b %y %T %z": ("Thu, 29 Feb 24 12:30:05 +01:30", "Mon, 1 jan 69 0:0:0 Z"),
    "%Y%m%dT%H%M%S%z": ("20240229T123005+0130", "20240229T123005-23:59", "20240229T123005Z"),
    "%Y %j": ("2024 060", "2024 366", "2023 366", "2023 0", "2023 1"),
    "%y%m%d": ("240229", "690101", "680101", "70131"),
    "%s.%f": ("1709209805.25", "-1.5", "-999999999999.1", "5."),
    "%s": ("1709209805", "-1", "1234567890123", "+5"),
    "x%Y %Z%%": ("x2024 GMT%", "x2024 utc%", "x1 Z%", "X2024Z%"),
    " %d  %m ": ("2 3", " 02 03 ", "\t2\n3", "23"),
}


class FilterWriter:
    """Writes filters of a few operators, as lists of words that `spaced` puts together."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def text(self) -> str:
        """A filter."""
        return spaced(self.random, self.condition(self.random.choice((0, 1, 1, 2, 3))))

    def expression(self) -> str:
        """A text that is no condition: mostly a call, whose value is seen as it is."""
        depth = self.random.choice((0, 0, 1, 2))
        words = self.call(depth) if self.random.random() < 0.7 else self.value(depth + 1, "x")
        return spaced(self.random, words)

    def condition(self, depth: int) -> list[str]:
        kind = self.random.random()
        if depth <= 0 or kind < 0.35:
            return self.parenthesised(self.predicate(depth), 0.05)
        if kind < 0.5:
            return ["NOT", *self.parenthesised(self.condition(depth - 1), 0.6)]
        if kind < 0.55:
            return self.value(depth - 1, "x")
        words = self.parenthesised(self.condition(depth - 1), 0.4)
        for _ in range(self.random.choice((1, 1, 1, 2))):
            words += [self.random.choice(("AND", "OR"))]
            words += self.parenthesised(self.condition(depth - 1), 0.4)
        return words

    def parenthesised(self, words: list[str], chance: float) -> list[str]:
        return ["(", *words, ")"] if self.random.random() < chance else words

    def predicate(self, depth: int) -> list[str]:
        kind = self.random.choice("===<~lbinaes")
        negation = ["NOT"] if self.random.random() < 0.3 else []
        operand = self.operand(depth, "a" if self.random.random() < 0.3 else "x")
        match kind:
            case "l":
                return [*operand, *negation, "LIKE", self.pattern()]
            case "b":
                bounds = [*self.operand(depth, "x"), "AND", *self.operand(depth, "x")]
                return [*operand, *negation, "BETWEEN", *bounds]
            case "i":
                return [*operand, *negation, "IN", *self.items(depth, "x")]
            case "e" | "s":
                side = "BEGINS" if kind == "e" else "ENDS"
                return [*operand, *negation, side, "WITH", *self.items(depth, "s")]
            case "n":
                return [*operand, "IS", *negation, "NULL"]
            case "a":
                return [*operand, "IS", *negation, "NAN"]
            case "~":  # a field and a constant, the commonest of all
                field = self.random.choice(PATHS)
                return [field, self.random.choice(COMPARISONS), *self.literal("x")]
        return [*operand, self.random.choice(COMPARISONS), *self.operand(depth, "x")]

    def items(self, depth: int, kind: str) -> list[str]:
        words = ["("]
        for index in range(self.random.choice((1, 2, 2, 3, 6))):
            words += [","] if index else []
            plain = self.random.random() < 0.75
            words += self.literal(kind) if plain else self.operand(depth - 1, kind)
        return [*words, ")"]

    def operand(self, depth: int, kind: str) -> list[str]:
        """What may stand beside an operator: a condition only in parentheses."""
        if depth > 1 and self.random.random() < 0.1:
            return ["(", *self.condition(depth - 2), ")"]
        return self.value(depth - 1, kind)

    def value(self, depth: int, kind: str) -> list[str]:
        if self.random.random() < 0.15:
            kind = "x"
        chance = self.random.random()
        if chance < 0.45 or depth <= 0:
            if chance < 0.3 or (depth <= 0 and chance < 0.65):
                return self.parenthesised([self.path(kind)], 0.05)
            return self.literal(kind)
        if chance < 0.6 and kind in "nx":
            return self.arithmetic(depth - 1)
        if chance < 0.65:
            return ["-", *self.parenthesised(self.value(depth - 1, "n"), 0.8)]
        return self.call(depth - 1)

    def arithmetic(self, depth: int) -> list[str]:
        words = self.parenthesised(self.value(depth, "n"), 0.3)
        for _ in range(self.random.choice((1, 1, 2))):
            words += [self.random.choice(("+", "-", "*", "/", "%", "MOD"))]
            words += self.parenthesised(self.value(depth, "n"), 0.3)
        return self.parenthesised(words, 0.5)

    def call(self, depth: int) -> list[str]:
        name = self.random.choice(tuple(TAKES))
        takes = [kind for kind in TAKES[name] if kind.islower() or self.random.random() < 0.6]
        words: list[str] = [name, "("]
        if name == "STRPTIME":
            return [*words, *self.time(depth), ")"]
        for index, kind in enumerate(takes):
            words += [","] if index else []
            words += self.argument(depth, kind.lower())
        return [*words, ")"]

    def argument(self, depth: int, kind: str) -> list[str]:
        match kind:
            case "p":
                return [self.pattern()]
            case "f":
                return [quoted(self.random, self.random.choice(FORMATS))]
            case "k" if self.random.random() < 0.8:
                sign = ["-"] if self.random.random() < 0.2 else []
                return [*sign, self.random.choice(COUNTS)]
            case "c":
                return self.condition(depth)
        if self.random.random() < 0.05:
            return self.condition(depth - 1)
        return self.operand(depth, kind)

    def time(self, depth: int) -> list[str]:
        """The arguments of STRPTIME: mostly a text that has the format."""
        template = self.random.choice(tuple(TIMES))
        text = [quoted(self.random, self.random.choice(TIMES[template]))]
        if self.random.random() < 0.3:
            text = self.argument(depth, "s")
        return [*text, ",", quoted(self.random, template)]

    def path(self, kind: str) -> str:
        if kind == "a" and self.random.random() < 0.7:
            return self.random.choice(("/l", "/m", "/o/l", "/l/a", "/m/b", "/l/l", "/m/l/a"))
        return self.random.choice(COMMON_PATHS if self.random.random() < 0.5 else PATHS)

    def pattern(self) -> str:
        pattern = self.random.choice(PATTERNS)
        if self.random.random() < 0.3:
            return f"r'{pattern}'".replace("\\\\", "\\")
        return f"'{pattern}'"

    def literal(self, kind: str) -> list[str]:
        chance = self.random.random()
        if chance < 0.06:
            return [self.random.choice(("TRUE", "FALSE", "NULL"))]
        if chance < 0.08:
            return ["NAN_VALUE", "(", ")"]
        if kind == "n" or (kind == "x" and chance < 0.5):
            number = self.random.choice(
                [n for n in NUMBERS if "e400" not in n] + [".5", "3.", "42"]
            )
            sign = "+" if self.random.random() < 0.05 and number[0] != "-" else ""
            return list(sign) + ([*"-", number[1:]] if number[0] == "-" else [number])
        return [quoted(self.random, self.random.choice(WORDS))]


def quoted(random: Random, string: str) -> str:
    """A string literal, some characters as escapes."""
    quote = random.choice("'\"")
    out = ""
    for character in string:
        chance = random.random()
        if character in (quote, "\\"):
            out += "\\" + character
        elif chance < 0.02:
            out += "".join(f"\\x{byte:02x}" for byte in character.encode())
        elif chance < 0.04:
            out += "".join(f"\\{byte:03o}" for byte in character.encode())
        elif chance < 0.05 and character.isupper():
            out += "\\" + character
        else:
            out += character
    return quote + out + quote


OPEN, CLOSED = ("(", ",", "=", "==", "!=", "<>", "<", "<=", ">", ">=", "+", "*", "%"), (")", ",")


def spaced(random: Random, words: list[str]) -> str:
    """The words as one text; white space is left out only where no two words become one."""
    words = [recased(random, word) for word in words]
    text = words[0]
    for left, right in pairwise(words):
        may_touch = left in OPEN or right in CLOSED or right in OPEN[2:] or left == "-" != right
        if left in OPEN[2:] and right in OPEN[2:]:
            may_touch = False
        if may_touch and random.random() < 0.6:
            text += right
        else:
            text += random.choice((" ", " ", " ", " ", "  ", "\t", "\n", "\r\n ")) + right
    return text


def recased(random: Random, word: str) -> str:
    """A word of the language in any case."""
    if word.replace("_", "").isalnum() and not word.isdigit() and random.random() < 0.1:
        return random.choice((word.lower(), word.capitalize()))
    return word
