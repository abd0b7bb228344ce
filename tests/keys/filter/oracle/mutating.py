"""Valid texts with one to three things wrong, or changed."""

from __future__ import annotations

from random import Random

from tests.keys.filter.oracle.reading import tokens

WORDS: tuple[str, ...] = (
    "(",
    ")",
    ",",
    "=",
    "!=",
    "<",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "MOD",
    "AND",
    "OR",
    "NOT",
    "IS",
)
WORDS += ("NULL", "NAN", "IN", "BETWEEN", "BEGINS", "ENDS", "WITH", "TRUE", "FALSE", "/a", "$.a")
WORDS += ("[/a b]", "'x'", "''", "1", "2.5", ".5", "1e400", "LENGTH", "CONCAT", "IF", "UUID7", "a")
WORDS += ("SUM", "ROUND", "r'\\'", "[0]", "!", "&&", "LIKE 'a'", "NOW()", "COUNT(/a)", "//", "==")
CHARACTERS = "()'\",=<>!+-*%/[] ab01.e\\@\t\n;&|é\x00"


def mutated(random: Random, text: str) -> str:
    """The text changed; it may still be valid.

    Characters are changed only where neither a pattern nor a JSONPath stands: about their dialects
    the two sides may differ.
    """
    by_character = not any(word in text.lower() for word in ("like", "regexp", "$"))
    for _ in range(random.choice((1, 1, 2, 3))):
        if by_character and random.random() < 0.5:
            text = _with_other_character(random, text)
            break
        text = _with_other_word(random, text)
    return text


def _with_other_character(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    new = random.choice(CHARACTERS) if random.random() < 0.7 else ""
    return text[:at] + new + text[at + random.choice((0, 1)) :]


def _with_other_word(random: Random, text: str) -> str:
    words = [text[token.start : token.end] for token in tokens(text)]
    at = random.randrange(len(words))
    match random.choice("drisc"):
        case "d":
            del words[at]
        case "r":
            words[at] = random.choice(WORDS)
        case "i":
            words.insert(at, random.choice(WORDS))
        case "s":
            other = random.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        case "c":
            del words[at + 1 :]
    return " ".join(words) or "("
