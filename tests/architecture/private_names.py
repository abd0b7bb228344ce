"""Finds private names of other people's code in the product: they change without notice.

Ruff reports attributes (SLF001), unless it is told not to. What it does not see is found here. The
pipeline is left to ruff: much of PySpark has no public name, and each use there says so.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from types import CodeType, FunctionType

from dev import ROOT
from tests.architecture.rules import modules, parsed

PACKAGES = ("app", "clients", "conflation", "keys")
PRIVATE = re.compile(r"_[A-Za-z]\w*")
NOT_REPORTED = re.compile(r"#\s*noqa\b(?!:(?!.*SLF))")
BY_NAME = {"attrgetter", "delattr", "getattr", "hasattr", "methodcaller", "pop", "setattr"}
MAKERS = ("abc", "builtins", "enum", "typing")  # whose bases only make a class of another kind
METHODS = (FunctionType, classmethod, property, staticmethod)


def all_findings() -> list[str]:
    """Every private name of other people's code in the product, with its module."""
    found = set[str]()
    for path in modules(*PACKAGES):
        name = str(path.relative_to(ROOT))
        found |= {f"{name}: {each}" for each in unreported(path.read_text("utf-8"))}
        found |= {f"{name}: {each}" for each in private_names(parsed(path))}
        if path.stem not in {"__init__", "__main__"}:
            module = importlib.import_module(f"tidegate.{name[:-3].replace('/', '.')}")
            for kind in vars(module).values():
                if isinstance(kind, type) and kind.__module__ == module.__name__:
                    found |= {f"{name}: {kind.__name__}.{each}" for each in shared(kind)}
    return sorted(found)


def unreported(text: str) -> Iterator[str]:
    """Lines in which ruff may not report a private attribute."""
    for number, line in enumerate(text.splitlines(), 1):
        if NOT_REPORTED.search(line):
            yield f"noqa in line {number}"


def private_names(tree: ast.Module) -> Iterator[str]:
    """Imports of private names, and attributes that are asked for by a private name."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                imported = [each.name for each in names]
            case ast.ImportFrom(module=str(module), names=names):
                imported = [f"{module}.{each.name}" for each in names]
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=arguments):
                yield from _texts(arguments if called in BY_NAME else [])
                continue
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                if not all(map(_is_text, elements)):  # not `__slots__`, whose names are our own
                    continue
                yield from _texts([] if _are_slots(tree, node) else elements)
                continue
            case _:
                continue
        yield from (each for each in imported if any(map(_is_private, each.split("."))))


def shared(kind: type) -> set[str]:
    """Private names that a class has in common with a base of other people's.

    It overrides or uses what is theirs, or hides it by chance.
    """
    root = kind.__module__.partition(".")[0]
    theirs = set[str]()
    for each in kind.__mro__[1:]:
        if each.__module__.partition(".")[0] not in {root, *MAKERS}:
            theirs |= _names(each)
    return _names(kind, inspect.getsourcefile(kind)) & theirs if theirs else set()


def _names(kind: type, file: str | None = None) -> set[str]:
    """The private names that a class defines or its methods use; `file`: the methods' own."""
    found = set[str]()
    for name, value in vars(kind).items():
        if _is_private(name) and isinstance(value, METHODS):
            found.add(name)
        for function in (value, getattr(value, "fget", None), getattr(value, "__func__", None)):
            if isinstance(function, FunctionType) and file in {None, function.__code__.co_filename}:
                found |= _names_in(function.__code__)
    return found


def _names_in(code: CodeType) -> set[str]:
    found = {name for name in code.co_names if _is_private(name)}
    return found.union(*(_names_in(each) for each in code.co_consts if isinstance(each, CodeType)))


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if _is_private(text):
                yield repr(text)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_private(name: str) -> bool:
    return PRIVATE.fullmatch(name) is not None


def _are_slots(tree: ast.Module, texts: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Assign)
        and node.value is texts
        and any(isinstance(to, ast.Name) and to.id == "__slots__" for to in node.targets)
        for node in ast.walk(tree)
    )
