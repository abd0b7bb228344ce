"""AMPS's filter language: text to tree, tree to canonical text and to a compiled predicate.

    filter     `Filter`, `Expression`, `conjunction`, `disjunction`, and the index of filters by
               equality
    parser     `Parser` (`value()`, `path()`, `accept()`, `expect()`, `at`, `at_end`) and
               `parse_value(text, position, start=...) -> (node, end)` for grammars around it,
               such as a projection's; names given as `aggregates` parse as `Call`
    tokens     text to tokens
    tree       the public syntax tree, and its canonical text
    compiling  tree to closures; `calls` compiles the calls of functions
    values     values of a message as filters compare them
    fields     reads the values of a message; comparisons, `IN`, `BETWEEN`, `BEGINS`, `ENDS`
    patterns   `LIKE` and REGEXP functions by RE2, and the bound on the work of a filter
    functions  the other functions; `times` has STRFTIME and STRPTIME

Rules filter-1 to filter-16 define every meaning.
"""

from tidegate.keys.errors import FilterInvalid
from tidegate.keys.filter.filter import (
    Equality,
    Expression,
    Filter,
    conjunction,
    disjunction,
    index_tokens,
)
from tidegate.keys.filter.parser import Parser, parse_value

__all__ = [
    "Equality",
    "Expression",
    "Filter",
    "FilterInvalid",
    "Parser",
    "conjunction",
    "disjunction",
    "index_tokens",
    "parse_value",
]
