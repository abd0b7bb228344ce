"""docs/semantics/functions.md has every function of the filter language, and is up to date."""

from __future__ import annotations

import pytest

from tests.docs.filter_examples import Example, answer
from tests.docs.filter_functions import arguments, functions, page
from tests.docs.rules import PAGES
from tidegate.keys.filter.calls import SIGNATURES, Signature


def test_the_page_is_what_its_generator_writes() -> None:
    assert (PAGES / "functions.md").read_text("utf-8") == page()


def test_every_function_is_there() -> None:
    assert functions().keys() == SIGNATURES.keys()


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_parameters_are_those_of_the_signature(name: str) -> None:
    signature = SIGNATURES[name]
    found = arguments(functions()[name].parameters, signature)
    assert found == (signature.least, signature.most)


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_an_example_calls_the_function_and_is_granted(name: str) -> None:
    example = functions()[name].example
    assert f"{name}(" in example
    assert not answer(Example(example, "", "{}")).startswith("refused")


@pytest.mark.parametrize(
    ("parameters", "least", "most"),
    [("", 0, 0), ("x", 1, 1), ("x [, n]", 1, 2), ("a, …", 1, 256), ("a, b, c", 3, 3)],
)
def test_arguments_are_counted(parameters: str, least: int, most: int) -> None:
    assert arguments(parameters, Signature(least, 256)) == (least, most)
