"""The mutants of keys/ and conflation/: one-line faults by the operators of cosmic-ray.

One operator is added to them: it removes a statement, because a call or an assignment that was
forgotten is the most frequent fault that people make.

Mutants that no test can distinguish from the product are left out: those in annotations, type
aliases and `__slots__`, and those that compile to the same bytecode.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, TypeGuard

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.binary_operator_replacement import BinaryOperators
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.operators.provider import OperatorProvider
from parso.python.tree import ExprStmt, Keyword

from tests.mutation.code import compiled, same_code

ROOMS = ("keys", "conflation")

WITHOUT_EFFECT = {"abstractmethod", "final", "overload", "override", "runtime_checkable"}
"""Decorators that change nothing for correct callers."""
BUILTIN_TYPES = {"None", "str", "bytes", "int", "float", "bool", "object", "list", "dict", "tuple"}

Position = tuple[int, int]
Span = tuple[Position, Position]


class RemoveStatement(Operator):  # type: ignore[misc]  # the library has no types
    """Replaces a call, or an assignment to a field or an item, with `pass`."""

    def mutation_positions(self, node: Any) -> Iterator[Span]:
        """Yield where such a statement is."""
        if node.type == "simple_stmt" and _is_removable(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Replace it, and keep the number of lines."""
        removed = node.children[0]
        lines = removed.get_code(include_prefix=False).count("\n")
        prefix = removed.get_first_leaf().prefix
        node.children[0] = Keyword("pass" + "\n" * lines, removed.start_pos, prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Say what is removed."""
        return (Example("x.y = 1", "pass"), Example("f(\n1)", "pass\n"))


def _is_removable(node: Any) -> bool:
    if not isinstance(node, ExprStmt):
        return bool(node.type == "atom_expr")
    target, sign = node.children[:2]
    is_update = bool(sign.type == "operator" and sign.value != "=")
    return is_update or bool(target.type == "atom_expr" and sign.type != "annassign")


@dataclass(frozen=True)
class Mutant:
    """One fault: an operator at its n-th place in a module."""

    path: str
    operator: str
    occurrence: int
    start: Position
    stop: Position

    @property
    def site(self) -> tuple[str, Position, Position, str]:
        """The place and the kind of fault, whatever takes the place of what is there."""
        return self.path, self.start, self.stop, self.operator.split("_")[0]

    def __str__(self) -> str:
        return f"{self.path}:{self.start[0]}:{self.start[1]} {self.operator}"


@cache
def operators() -> dict[str, Operator]:
    """Each operator by its name, but for those that need arguments."""
    classes = {name: OperatorProvider()[name] for name in OperatorProvider()}
    made = {name: kind() for name, kind in classes.items() if not kind.arguments()}
    return {**made, "RemoveStatement": RemoveStatement()}


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """All mutants of one module, in a fixed order."""
    source = (root / path).read_text()
    tree = get_ast(source)
    hidden = list(_without_effect(ast.parse(source)))
    found = []
    counts: dict[str, int] = {}
    for node in ast_nodes(tree):
        # Other signs than those of operators are most of the leaves.
        for name, operator in _operators_at(node.value if node.type == "operator" else node.type):
            for start, stop in operator.mutation_positions(node):
                if not any(first <= start and stop <= last for first, last in hidden):
                    found.append(Mutant(path, name, counts.get(name, 0), start, stop))
                counts[name] = counts.get(name, 0) + 1
    return found


@cache
def _operators_at(kind: str) -> list[tuple[str, Operator]]:
    """The operators that may have positions in a sign or a kind of node: one in ten, or none."""
    return [
        (name, operator)
        for name, operator in operators().items()
        if kind in _kinds(*name.split("_"))
        or (not _kinds(*name.split("_")) and kind.isidentifier())
    ]


def _kinds(family: str, sign: str = "", *_: str) -> tuple[str, ...]:
    """The only kinds that this family of operators replaces something in, if it is a large one."""
    match family:
        case "ReplaceBinaryOperator":
            return (BinaryOperators[sign].value,)
        case "ReplaceComparisonOperator":
            return ("comparison",)
        case "ReplaceUnaryOperator":
            return ("factor", "not_test")
    return ()


@cache
def mutated(root: Path, mutant: Mutant) -> str | None:
    """The module's text with the fault in it; None where it compiles to the same, or to nothing."""
    source = (root / mutant.path).read_text()
    try:
        text: str | None = mutate_code(source, operators()[mutant.operator], mutant.occurrence)
    except AttributeError:  # the tool knows no exception with a dot in its name
        return None
    if text is None:
        return None
    try:
        code = compiled(text, mutant.path)
    except (SyntaxError, ValueError):
        return None
    return None if same_code(compiled(source, mutant.path), code) else text


def modules(root: Path) -> list[str]:
    """The modules of all rooms."""
    return sorted(
        str(path.relative_to(root)) for room in ROOMS for path in (root / room).rglob("*.py")
    )


def draw(root: Path, seed: int, count: int) -> list[Mutant]:
    """Draw places at random, and one fault for each; an operator with many variants counts once."""
    random = Random(seed)
    sites: dict[object, list[Mutant]] = {}
    for path in modules(root):
        for mutant in mutants_of(root, path):
            sites.setdefault(mutant.site, []).append(mutant)
    places = list(sites.values())
    random.shuffle(places)
    drawn: list[Mutant] = []
    for variants in places:
        if len(drawn) == count:
            break
        mutant = random.choice(variants)
        if mutated(root, mutant) is not None:
            drawn.append(mutant)
    return drawn


def _without_effect(tree: ast.Module) -> Iterator[Span]:
    """Spans whose mutants no test can see."""
    for node in ast.walk(tree):
        yield from map(_span, _annotations(node))
        for each in getattr(node, "decorator_list", ()):
            if ast.unparse(each) in WITHOUT_EFFECT:
                yield (each.lineno, 0), (each.lineno + 1, 0)
        if _is_for_types(node):
            yield _span(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "cast":
            yield _span(node.args[0])


def _annotations(node: ast.AST) -> Iterable[ast.expr]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = node.args
        arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        found = [node.returns, *(each.annotation for each in arguments if each is not None)]
        yield from (each for each in found if each is not None)
    elif isinstance(node, ast.AnnAssign):
        yield node.annotation


def _is_for_types(node: ast.AST) -> TypeGuard[ast.stmt | ast.expr]:
    """Whether it assigns `__slots__`, or is for type checkers only."""
    match node:
        case ast.If(test=test):
            return "TYPE_CHECKING" in ast.unparse(test)
        case ast.Call(func=ast.Name(id="TypeVar" | "NewType")):
            return True
        case ast.Assign(targets=[ast.Name(id="__slots__")]):
            return True
        case ast.AnnAssign(annotation=annotation):
            return "TypeAlias" in ast.unparse(annotation)
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name[0].isupper():
            return _is_type(ast.unparse(value))
    return False


def _is_type(text: str) -> bool:
    """Whether an expression is a union or a generic type, to judge from its spelling."""
    words = re.findall(r"[\w.]+", text)
    return bool(re.fullmatch(r"[\w.\[\], |]+", text) and re.search(r"[|\[]", text)) and all(
        word in BUILTIN_TYPES or (word[0].isupper() and not word.isupper()) for word in words
    )


def _span(node: ast.expr | ast.stmt) -> Span:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
