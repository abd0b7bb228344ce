"""Messages under a weighed schema: the most that a check can take, and the size of a pattern."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Numbers outside a machine word cost far more than other values: this many units more for each
# unit of the schema. A comparison costs most at exponents of four and five digits.
BIG_DIGITS = 30
EXPONENTS = {2: 10, 3: 300}
HUGE_EXPONENT = 20_000
# uniqueItems compares each pair of such numbers.
BIG_PAIR = 50
EXPONENT_AS_DIGITS = 5
_BIG = re.compile(rb"[0-9.]{19}|[0-9]{16}|[eE][+-]?[0-9]{2,}")
_SHAPES = bytes.maketrans(b"123456789.E+", b"0000000000e-")
_BIG_SHAPES = (b"0" * 16, b"e00", b"e-00")
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')


_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[a-zA-Z-]*:|\(\?P?<\w+>|\(\?[a-zA-Z-]+\)"
    r"|\{\d*(?:,\d*)?\}|.",
    re.DOTALL,
)
_REPEAT = re.compile(r"\{(\d*)(?:(,)(\d*))?\}")
# Syntax that engines read differently, or with spaces between: these patterns are counted as if
# all their repetitions were nested.
_UNCERTAIN = re.compile(r"\[\]|\[\^\]|\[[^\]]*\[|\(\?[a-zA-Z-]*x")
_CLASSES = ("\\w", "\\W", "\\d", "\\D", "\\s", "\\S", "\\p", "\\P")


@dataclass(frozen=True, slots=True)
class Weight:
    """Units of one value: a scalar, an object or array, and a tenth of a byte of text."""

    scalar: int = 0
    container: int = 0
    byte: int = 0

    def plus(self, other: Weight, times: int = 1) -> Weight:
        """Return the sum with `times` the other weight."""
        return Weight(
            self.scalar + times * other.scalar,
            self.container + times * other.container,
            self.byte + times * other.byte,
        )

    def most(self, other: Weight) -> Weight:
        """Return the maximum of each figure."""
        return Weight(
            max(self.scalar, other.scalar),
            max(self.container, other.container),
            max(self.byte, other.byte),
        )

    @property
    def greatest(self) -> int:
        """The greatest of its figures."""
        return max(self.scalar, self.container, self.byte)


@dataclass(frozen=True, slots=True)
class SchemaCost:
    """The cost of a message: `root` for the outermost value, `inner` for each value below."""

    root: Weight
    inner: Weight
    has_numbers: bool
    has_unique: bool
    has_branches: bool

    def work(self, payload: bytes) -> int:
        """Return the most units that a check of a message, a JSON text, can take."""
        # Brackets and commas in texts count too: then the bound is higher, and still one.
        containers = payload.count(b"{") + payload.count(b"[")
        scalars = payload.count(b",") + 1
        inner, byte = self.inner, max(self.root.byte, self.inner.byte)
        work = self.root.container + inner.container * containers + inner.scalar * scalars
        work += byte * len(payload) // 10
        if self.has_numbers:
            shapes = payload.translate(_SHAPES)
            if any(shape in shapes for shape in _BIG_SHAPES):
                work += self._big_numbers(_TEXT.sub(b'"', payload))
        return work

    def _big_numbers(self, payload: bytes) -> int:
        each = digits = integers = 0
        for found in _BIG.finditer(payload):
            if len(found[0]) == 16 and found[0].isdigit():
                integers += 1  # a machine word has it, and a double perhaps not
            elif found[0][:1] not in b"eE":
                each += BIG_DIGITS
                digits += 1
            else:
                exponent = len(found[0].lstrip(b"eE+-"))
                each += EXPONENTS.get(exponent, HUGE_EXPONENT)
                digits += EXPONENT_AS_DIGITS if exponent > 2 else 1
        pairs = BIG_PAIR * digits * (digits + 2 * integers) + integers * integers
        each *= max(self.root.scalar, self.inner.scalar, 1)
        return each + pairs if self.has_unique else each


def expanded(pattern: str, per_class: int, limit: int) -> int:
    """Count a pattern's characters and classes, each as often as its repetitions say.

    A matcher can have to follow that many places at once for every byte of a text, whatever the
    engine. `per_class` is what a class counts; beyond `limit` the count need not be exact.
    """
    if _UNCERTAIN.search(pattern):
        return _at_most(pattern, per_class, limit)
    groups: list[tuple[int, int]] = [(0, 0)]  # what a group has so far, and its last item
    for token in _TOKEN.findall(pattern):
        done, last = groups[-1]
        repeat = _REPEAT.fullmatch(token)
        if repeat is not None:
            groups[-1] = (done, min(last * _times(repeat), limit + 1))
        elif token[0] == "(" and not token.endswith(")"):
            groups.append((0, 0))
        elif token == ")" and len(groups) > 1:
            inner = groups.pop()
            done, last = groups[-1]
            groups[-1] = (min(done + last, limit + 1), min(sum(inner) + 1, limit + 1))
        elif token not in ("*", "+", "?", "|"):
            groups[-1] = (min(done + last, limit + 1), per_class if _is_class(token) else 1)
    return min(sum(map(sum, groups)) + 1, limit + 1)


def _times(repeat: re.Match[str]) -> int:
    low = int(repeat[1][:9] or 0)
    high = int(repeat[3][:9]) if repeat[3] else low + (1 if repeat[2] else 0)
    return max(low, high, 1)


def _at_most(pattern: str, per_class: int, limit: int) -> int:
    count = len(pattern) * per_class + 1
    for figure in re.findall(r"\d+", pattern):
        count = min(count * max(int(figure[:9]), 1), limit + 1)
    return count


def _is_class(token: str) -> bool:
    """Return True if a token matches a large part of Unicode."""
    return (
        token == "." or token in _CLASSES or (token[0] == "[" and ("\\" in token or "^" in token))
    )
