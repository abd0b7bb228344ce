"""A TOML file as tables; what is wrong with it is one sentence with the line."""

from __future__ import annotations

import codecs
import re
import tomllib
from pathlib import Path
from typing import Any

from pipeline.errors import DefinitionInvalid

_PLACED = re.compile(r"(.*) \(at (?:(line \d+, column \d+)|end of document)\)", re.DOTALL)
_NAMES = re.compile(r"\((['\"].*)\)")  # how Python writes the parts of a dotted name
_QUOTES = 'a text stands in quotes, such as "1s"'
# What is nearly always meant, where the parser only says what it cannot go on with.
_ADVICE = {
    "Invalid value": _QUOTES,
    "Expected newline or end of document after a statement": _QUOTES,
    "Illegal character '\\n'": "the quote at the end of a text is missing",
    "Unterminated string": "the quote at the end of a text is missing",
    "Unclosed array": "a comma between two values is missing, or ] at the end",
    "Unclosed inline table": "a comma between two fields is missing, or } at the end",
    "Invalid initial character for a key part": (
        "a table in braces stands on one line, without a comma at its end"
    ),
    "Cannot overwrite a value": "the same field stands twice",
    "Unescaped '\\' in a string": "write \\\\ for a backslash, or put the text in single quotes",
}


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file.

    Raises:
        DefinitionInvalid: it cannot be read, or is no TOML; the text names the line.
    """
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise DefinitionInvalid(f"{path}: {error.strerror or error}") from None
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DefinitionInvalid(f"{path}: line {line}: not UTF-8, save the file as that") from None
    except tomllib.TOMLDecodeError as error:
        raise DefinitionInvalid(f"{path}: {_sentence(str(error))}") from None
    except RecursionError:
        raise DefinitionInvalid(f"{path}: lists or tables stand too deep in one another") from None
    except ValueError:  # of Python, which reads no number of thousands of digits
        raise DefinitionInvalid(f"{path}: a number has too many digits") from None


def _sentence(said: str) -> str:
    """The place before the reason, and what to do if that is known."""
    found = _PLACED.fullmatch(said)
    if found is None:
        return f"not TOML, {said}"
    reason, line = found.groups()
    advice = f"; {_ADVICE[reason]}" if line and reason in _ADVICE else ""
    plain = _NAMES.sub(_dotted, reason[:1].lower() + reason[1:])
    return f"{line or 'at the end'}: not TOML, {plain}{advice}"


def _dotted(names: re.Match[str]) -> str:
    return ".".join(re.findall(r"['\"](.*?)['\"]", names[1]))
