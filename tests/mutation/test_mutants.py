"""Which mutants there are, and that one replaces what is imported."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from tests.mutation.code import Replacement, compiled, functions
from tests.mutation.mutants import Mutant, mutants_of, mutated

SOURCE = """
from __future__ import annotations

from typing import TypeAlias

Pair = list[int] | None
Key: TypeAlias = int | str


class Counter:
    __slots__ = ("count", *"ab"[:1])

    def add(self, more: int | None = 1) -> int | None:
        self.count += more
        return self.count - 1


def counted(
    *numbers: int | str,
) -> Counter:
    counter = Counter()
    counter.count = 0
    for number in numbers:
        counter.add(
            number
        )
    return counter
"""


@pytest.fixture(name="root")
def root_fixture(tmp_path: Path) -> Path:
    (tmp_path / "module.py").write_text(SOURCE)
    return tmp_path


def test_annotations_and_slots_have_no_mutants(root: Path) -> None:
    places = {(mutant.start[0], mutant.operator.split("_")[0]) for mutant in _mutants(root)}
    assert places == {
        (13, "NumberReplacer"),
        (14, "RemoveStatement"),
        (15, "NumberReplacer"),
        (15, "ReplaceBinaryOperator"),
        (22, "NumberReplacer"),
        (22, "RemoveStatement"),
        (23, "ZeroIterationForLoop"),
        (24, "RemoveStatement"),
    }


def test_a_removed_statement_moves_no_line(root: Path) -> None:
    (removed,) = (each for each in _mutants(root) if each.start[0] == 24)
    text = mutated(root, removed)
    assert text is not None
    assert text.splitlines()[23:27] == ["        pass", "", "", "    return counter"]


def test_what_compiles_to_the_same_is_no_mutant(root: Path) -> None:
    (root / "module.py").write_text("0 + 1\n")
    assert {mutated(root, mutant) for mutant in _mutants(root)} == {None}


def test_a_mutant_that_the_compiler_warns_of_is_one(root: Path) -> None:
    (root / "module.py").write_text("def is_digit(x):\n    return 0 <= x <= 9\n")
    (warned,) = (each for each in _mutants(root) if each.operator.endswith("_LtE_IsNot"))
    assert mutated(root, warned) == "def is_digit(x):\n    return 0 is not x <= 9\n"


def test_a_mutant_replaces_imported_functions(root: Path) -> None:
    path = str(root / "module.py")
    module = types.ModuleType("module")
    exec(compiled(SOURCE, path), module.__dict__)
    add = module.Counter.add
    counter = module.counted(2, 3)
    (less,) = (each for each in _mutants(root) if each.operator.endswith("_Sub_Add"))
    text = mutated(root, less)
    assert text is not None
    replacement = Replacement(compiled(SOURCE, path), compiled(text, path))
    known = functions()
    assert replacement.is_within_functions(known)
    replacement.apply(known)
    assert (counter.count, add(counter)) == (5, 7)


def test_what_a_module_does_on_import_replaces_no_function(root: Path) -> None:
    path = str(root / "module.py")
    default = min(each.occurrence for each in _mutants(root) if each.start[0] == 13)
    text = mutated(root, Mutant("module.py", "NumberReplacer", default, (13, 0), (13, 1)))
    assert text is not None
    replacement = Replacement(compiled(SOURCE, path), compiled(text, path))
    assert not replacement.is_within_functions(functions())


def _mutants(root: Path) -> list[Mutant]:
    return mutants_of(root, "module.py")
