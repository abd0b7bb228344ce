"""AMPS's filter language: text to tree, tree to canonical text and to a compiled predicate.

    filter     `Filter`, `Expression`, `conjunction`: what others use
    parser     `Parser` (`value()`, `path()`, `accept()`, `expect()`, `at`, `at_end`) and
               `parse_value(text, position, start=...) -> (node, end)` for grammars around it,
               such as a projection's; names given as `aggregates` parse as `Call`
    tree       the public syntax tree
    printing   tree to canonical text
    index      `Equality` and `index_tokens`: which filters a message can match at all
    compiling  tree to closures

Rules filter-1 to filter-16 say what everything means.
"""

from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter.filter import Equality, Expression, Filter, conjunction, index_tokens
from tidegate.keys.filter.parser import Parser, parse_value

__all__ = [
    "Equality",
    "Expression",
    "Filter",
    "FilterInvalid",
    "Parser",
    "conjunction",
    "index_tokens",
    "parse_value",
]
