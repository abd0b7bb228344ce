"""What a filter may cost: limits of its text, checked while it is parsed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter.patterns import INSTRUCTIONS_MAX, compiled

TEXT_LENGTH_MAX = 4_096
CANONICAL_LENGTH_MAX = 8 * TEXT_LENGTH_MAX
DEPTH_MAX = 32
NODES_MAX = 256
LIST_LENGTH_MAX = 1_000


class Budget:
    """Counts depth, nodes and regular expressions; every excess is a `FilterInvalid`."""

    def __init__(self) -> None:
        self._depth = 0
        self._nodes = 0
        self._instructions: dict[str, int] = {}

    @contextmanager
    def nested(self, position: int) -> Iterator[None]:
        """One level deeper, for what is parsed inside."""
        if self._depth == DEPTH_MAX:
            raise FilterInvalid(f"nested deeper than {DEPTH_MAX} levels", position)
        self._depth += 1
        yield
        self._depth -= 1

    def node(self, position: int) -> None:
        """One more node."""
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise FilterInvalid(f"more than {NODES_MAX} nodes", position)

    def spare(self) -> None:
        """The next node is not counted."""
        self._nodes -= 1

    def pattern(self, pattern: str, position: int) -> None:
        """One more regular expression, which must be one."""
        self._instructions[pattern] = compiled(pattern, position).programsize
        if sum(self._instructions.values()) > INSTRUCTIONS_MAX:
            raise FilterInvalid("the regular expressions are too large", position)
