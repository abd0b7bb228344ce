"""Compares the product's code in two places by its syntax: a move of code must change none of it.

    python -m tests.golden.same_code OLD NEW [--renames FILE] [--paths FILE] [PACKAGE ...]

OLD and NEW are git revisions, or folders (`.` for the work tree). Docstrings, comments, imports
and layout do not count, nor does the module that something stands in. A line of the file of renames
is `old new`: an identifier everywhere (`Usher Joiner`), or an access through a module
(`joiner.join join`). A line of the file of paths is `old/module.py new/module.py`; it
tells which of several equal names belong together.

Every function, every class without its methods and every statement of a module is one piece.
Exit code 0: the same pieces. 1: some were added, removed or changed; they are printed.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("app", "clients", "conflation", "keys", "pipeline", "pyspark_tidegate")
IMPORTS = (ast.Import, ast.ImportFrom)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Piece(NamedTuple):
    """One function, class or statement: where it stands, its qualified name, its syntax."""

    path: str
    name: str
    syntax: str


class Difference(NamedTuple):
    """What became of a piece: `added`, `removed` or `changed`."""

    what: str
    name: str
    old_path: str
    new_path: str

    def __str__(self) -> str:
        places = [path for path in (self.old_path, self.new_path) if path]
        return f"{self.what} {self.name} {' -> '.join(dict.fromkeys(places))}"


class Plain(ast.NodeTransformer):
    """Takes out what does not count, and renames."""

    def __init__(self, renames: Mapping[str, str]) -> None:
        self._renames = renames

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Every identifier of a node, whatever the field is called."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            through_module = self._renames.get(f"{node.value.id}.{node.attr}")
            if through_module is not None:
                return ast.parse(through_module, mode="eval").body
        if isinstance(node, IMPORTS):
            return None
        self.generic_visit(node)
        for name in ("id", "attr", "arg", "name"):
            found = getattr(node, name, None)
            if isinstance(found, str):
                setattr(node, name, self._renames.get(found, found))
        if isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [self._renames.get(name, name) for name in node.names]
        if isinstance(node, ast.Load | ast.Store | ast.Del):
            return node
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if isinstance(statements, list):
                setattr(node, block, [one for one in statements if not _is_text(one)])
        return node


def _is_text(statement: ast.AST) -> bool:
    """A docstring, or a text below a constant that says what it is."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def pieces_of(path: str, text: str, renames: Mapping[str, str]) -> Iterator[Piece]:
    """The pieces of a module."""
    tree = Plain(renames).visit(ast.parse(text))
    assert isinstance(tree, ast.Module)
    yield from _pieces(path, "", tree.body)


def _pieces(path: str, prefix: str, body: Sequence[ast.stmt]) -> Iterator[Piece]:
    for statement in body:
        if not isinstance(statement, DEFINITIONS):
            yield Piece(path, _name_of(statement), ast.dump(statement))
            continue
        name = f"{prefix}{statement.name}"
        if isinstance(statement, FUNCTIONS):
            yield Piece(path, name, ast.dump(statement))
            continue
        inner = [one for one in statement.body if isinstance(one, DEFINITIONS)]
        statement.body = [one for one in statement.body if not isinstance(one, DEFINITIONS)]
        yield Piece(path, name, ast.dump(statement))
        yield from _pieces(path, f"{name}.", inner)


def _name_of(statement: ast.stmt) -> str:
    """Of a module's statement: what it assigns, else its beginning."""
    match statement:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            return ast.unparse(target)
    return f"<{ast.unparse(statement).partition(chr(10))[0][:60]}>"


def differences(
    old: Sequence[Piece], new: Sequence[Piece], paths: Mapping[str, str]
) -> Iterator[Difference]:
    """What is not in both; of equal names those of one module belong together, then any."""
    for name in sorted({piece.name for piece in (*old, *new)}):
        gone = [piece for piece in old if piece.name == name]
        come = [piece for piece in new if piece.name == name]
        _pair(gone, come, lambda one, other: _at_home(one, other, paths) and _alike(one, other))
        changed = _pair(gone, come, lambda one, other: _at_home(one, other, paths))
        _pair(gone, come, _alike)
        if len(gone) == len(come) == 1:
            changed += _pair(gone, come, lambda one, other: True)
        for one, other in changed:
            yield Difference("changed", name, one.path, other.path)
        yield from (Difference("removed", name, piece.path, "") for piece in gone)
        yield from (Difference("added", name, "", piece.path) for piece in come)


def _pair(
    gone: list[Piece], come: list[Piece], belong: Callable[[Piece, Piece], bool]
) -> list[tuple[Piece, Piece]]:
    """Take out of both lists those that belong together."""
    pairs: list[tuple[Piece, Piece]] = []
    for piece in list(gone):
        partner = next((one for one in come if belong(piece, one)), None)
        if partner is not None:
            gone.remove(piece)
            come.remove(partner)
            pairs.append((piece, partner))
    return pairs


def _at_home(old: Piece, new: Piece, paths: Mapping[str, str]) -> bool:
    return paths.get(old.path, old.path) == new.path


def _alike(old: Piece, new: Piece) -> bool:
    return old.syntax == new.syntax


def modules_of(place: str, packages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Path and text of each module, of a folder or of a revision."""
    folder = Path(place)
    if folder.is_dir():
        for package in packages:
            for path in sorted((folder / package).rglob("*.py")):
                yield path.relative_to(folder).as_posix(), path.read_text()
        return
    command = ["git", "archive", "--format=tar", place]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            found = archive.extractfile(member) if member.name.endswith(".py") else None
            if found is not None and member.name.split("/")[0] in packages:
                yield member.name, found.read().decode()


def compare(
    old: str,
    new: str,
    packages: Sequence[str],
    *,
    renames: Mapping[str, str],
    paths: Mapping[str, str],
) -> list[Difference]:
    """Everything that differs between two places."""
    before = [
        piece
        for path, text in modules_of(old, packages)
        for piece in pieces_of(path, text, renames)
    ]
    after = [
        piece for path, text in modules_of(new, packages) for piece in pieces_of(path, text, {})
    ]
    return list(differences(before, after, paths))


def _table(path: Path | None) -> dict[str, str]:
    """Two words a line; `#` begins a comment."""
    if path is None:
        return {}
    lines = (line.partition("#")[0].split() for line in path.read_text().splitlines())
    return {words[0]: words[1] for words in lines if words}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, say whether it is the same."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden.same_code",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--renames", type=Path)
    parser.add_argument("--paths", type=Path)
    given = parser.parse_args(arguments)
    found = compare(
        given.old,
        given.new,
        given.packages,
        renames=_table(given.renames),
        paths=_table(given.paths),
    )
    for difference in found:
        sys.stdout.write(f"{difference}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
