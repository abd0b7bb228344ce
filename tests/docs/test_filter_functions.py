"""docs/semantics/functions.md has every function of the filter language, and is up to date."""

from __future__ import annotations

from tests.docs.filter_examples import Example, answer
from tests.docs.filter_functions import arguments, functions, page
from tests.docs.rules import PAGES
from tidegate.keys.filter.calls import SIGNATURES


def test_the_page_is_what_its_generator_writes() -> None:
    assert (PAGES / "functions.md").read_text("utf-8") == page()


def test_every_function_is_there() -> None:
    assert functions().keys() == SIGNATURES.keys()


def test_parameters_are_those_of_the_signature() -> None:
    shown = {
        name: arguments(functions()[name].parameters, signature)
        for name, signature in SIGNATURES.items()
    }
    assert shown == {name: (each.least, each.most) for name, each in SIGNATURES.items()}


def test_an_example_calls_the_function_and_is_granted() -> None:
    for name, function in functions().items():
        assert f"{name}(" in function.example
        assert not answer(Example(function.example, "", "{}")).startswith("refused"), name
