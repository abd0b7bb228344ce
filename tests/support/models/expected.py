"""Lookups in a model that fail where the engine did something that the model does not know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def expected() -> Iterator[None]:
    """Make a failed look-up in the model a failed assertion, because the engine caused it.

    Call nothing of the engine in the block: a crash there is no difference from the model.

    Raises:
        AssertionError: a key, a line or an entry that the engine implies is not in the model.
    """
    try:
        yield
    except (LookupError, ValueError) as missing:
        raise AssertionError(f"the model does not expect {missing!r}") from missing
