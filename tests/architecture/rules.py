"""The house rules that no linter knows, as functions from a module to what breaks them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from dev import ROOT

PACKAGES = ("keys", "conflation", "app", "pipeline", "pyspark_tidegate", "clients")
PURE = ("keys", "conflation")

BANNED_WORDS = {"manager", "handler", "helper", "util"}  # also in the plural, and inside a name
BANNED_NAMES = {"data", "timeout"}  # alone: data_line and write_timeout_s say what they are
BANNED_PARAMETERS = {"key"}  # of what: sow_key, conflation_key, key_text
IMPOSED = {"data_received": "data"}  # the parameter that asyncio gives its protocols
FIELDS = {"ConflatedTopic": "key"}  # fields of a definition, as the HTTP API names them
BANNED_CALLS = {"print", "open", "input", "breakpoint", "eval", "exec", "__import__"}
PURE_IMPORTS = {
    *("__future__", "abc", "array", "base64", "bisect", "collections", "contextlib", "copy"),
    *("dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq"),
    *("itertools", "json", "math", "numbers", "operator", "re", "string", "struct", "types"),
    *(
        "typing",
        "unicodedata",
        "weakref",
        "zlib",
        "msgspec",
        "jsonpath_ng",
        "re2",
        "sortedcontainers",
        "tidegate.keys",
        "tidegate.conflation",
    ),
}

Rule = Callable[[ast.Module], Iterator[str]]


def modules(*folders: str) -> list[Path]:
    """Every Python file below the folders, in a stable order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def banned_names(tree: ast.Module) -> Iterator[str]:
    """A class, function, parameter or variable whose name says nothing."""
    imposed = {id(parameter) for parameter in _imposed_parameters(tree)}
    for node in ast.walk(tree):
        name = _defined_name(node)
        if name is None or id(node) in imposed:
            continue
        words = {word.lower().removesuffix("s") for word in _words(name)}
        bare = name.lower().strip("_")
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        unclear = isinstance(node, ast.arg) and bare in BANNED_PARAMETERS
        unclear |= is_function and bare == "process"
        if unclear or words & BANNED_WORDS or bare in BANNED_NAMES:
            yield f"the name {name} in line {getattr(node, 'lineno', '?')}"


def banned_module_name(name: str) -> bool:
    """Whether a module's own name says nothing."""
    words = {word.lower().removesuffix("s") for word in _words(name)}
    return bool(words & BANNED_WORDS) or name in {*BANNED_NAMES, "process"}


def impure_imports(tree: ast.Module) -> Iterator[str]:
    """An import that a package without I/O, clock or chance has no use for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "."]
        else:
            continue
        for name in names:
            root, *rest = name.split(".")
            package = ".".join([root, *rest[:1]]) if root == "tidegate" else root
            if package not in PURE_IMPORTS:
                yield f"imports {name} in line {node.lineno}"


def impure_syntax(tree: ast.Module) -> Iterator[str]:
    """A call or a coroutine that a package without I/O, clock or tasks has no use for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"a coroutine in line {node.lineno}"
        elif isinstance(node, ast.Name) and node.id in BANNED_CALLS:
            yield f"{node.id} in line {node.lineno}"


def findings(rule: Rule, paths: list[Path]) -> list[str]:
    """What breaks a rule, one line each, with the file in front."""
    found = []
    for path in paths:
        found += [f"{path.relative_to(ROOT)}: {finding}" for finding in rule(parsed(path))]
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """Parse a module once for all rules."""
    return ast.parse(path.read_text("utf-8"), filename=str(path))


def _imposed_parameters(tree: ast.Module) -> Iterator[ast.arg]:
    """Parameters whose names belong to the method that is overridden, or to the HTTP API."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in IMPOSED:
            yield from (each for each in node.args.args if each.arg == IMPOSED[node.name])
        if isinstance(node, ast.ClassDef) and node.name in FIELDS:
            made = (it for it in node.body if isinstance(it, ast.FunctionDef))
            fields = (each for it in made if it.name == "__init__" for each in it.args.kwonlyargs)
            yield from (each for each in fields if each.arg == FIELDS[node.name])


def _defined_name(node: ast.AST) -> str | None:
    """The name that a node brings into the world, if it does."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr
    return None


@cache
def _words(name: str) -> list[str]:
    """The words of a name in either spelling: queue_bytes, QueueBytes."""
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
