"""Compares the bytecode of a module with that of its mutant, and puts a mutant's in its place."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from types import CodeType, FunctionType

Key = tuple[str, str, int]
"""File, qualified name and first line of a function."""


def compiled(text: str, path: str) -> CodeType:
    """Compile a module, without the warnings that a fault in it may earn.

    Raises:
        SyntaxError: it is not Python.
        ValueError: it is not text.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # `x is 1`
        return compile(text, path, "exec", dont_inherit=True)


def same_code(left: CodeType, right: CodeType) -> bool:
    """Whether two modules or functions, with all within them, do the same."""
    within = list(zip(_within(left), _within(right), strict=False))
    return (
        _same_body(left, right)
        and len(_within(left)) == len(_within(right))
        and all(same_code(*pair) for pair in within)
    )


def _within(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _same_body(left: CodeType, right: CodeType) -> bool:
    return _body(left) == _body(right)


def _body(code: CodeType) -> tuple[object, ...]:
    """All that decides what it does, but for the functions within; no line or column."""
    constants = [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]
    names = code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    table = getattr(code, "co_exceptiontable", b"")
    return code.co_code, constants, code.co_flags, table, names


class Replacement:
    """What turns a module that is imported into its mutant."""

    def __init__(self, old: CodeType, new: CodeType) -> None:
        self.pairs = list(_differing(old, new))

    def is_within_functions(self, known: dict[Key, list[FunctionType]]) -> bool:
        """Whether nothing needs to be imported again; `known` are the functions there are."""
        return all(
            not (old.co_name == "<module>" or "<genexpr>" in old.co_name)
            and key_of(old) in known
            and old.co_freevars == new.co_freevars
            for old, new in self.pairs
        )

    def lines(self) -> set[int]:
        """The lines of the functions that differ."""
        return {line for old, _ in self.pairs for _, _, line in old.co_lines() if line is not None}

    def apply(self, known: dict[Key, list[FunctionType]]) -> None:
        """Put it into all functions, wherever they are referred to from."""
        for old, new in self.pairs:
            for function in known[key_of(old)]:
                function.__code__ = new


def _differing(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The outermost functions that differ themselves, and those within them."""
    if not _same_body(old, new) or len(_within(old)) != len(_within(new)):
        yield old, new
        return
    for pair in zip(_within(old), _within(new), strict=True):
        yield from _differing(*pair)


def key_of(code: CodeType) -> Key:
    """How a function is found again."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


def functions() -> dict[Key, list[FunctionType]]:
    """All functions there are, by what identifies their code."""
    found: dict[Key, list[FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is FunctionType:
            found.setdefault(key_of(each.__code__), []).append(each)
    return found


def clear_caches() -> None:
    """Forget what `lru_cache` keeps: it was calculated by the code before."""
    from functools import _lru_cache_wrapper

    for each in gc.get_objects():
        if type(each) is _lru_cache_wrapper and each.__module__.startswith("tidegate."):
            each.cache_clear()
