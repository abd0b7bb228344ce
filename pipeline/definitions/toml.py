"""A TOML table taken apart field by field, so that nothing unknown is passed over."""

from __future__ import annotations

import codecs
import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from tidegate.keys.errors import KeysError
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec
from tidegate.pipeline.errors import DefinitionInvalid

if TYPE_CHECKING:
    from tidegate.keys.filter import Filter

COUNT_MAX = 2**31 - 1  # Spark reads maxFilesPerTrigger as Java's int
ALIKE_MIN = 0.66  # finds `kye` for `key`; no two fields of one table are so alike
SHOWN_MAX = 100
PLACE_MAX = 200
# Errors end in logs, where no password may be.
_CREDENTIALS = re.compile(r"//[^/@\s]*@")


class TomlTable:
    """A TOML table whose fields are taken one by one; what is left at the end is unknown.

    `asked` are the fields that callers have asked for.
    """

    def __init__(self, fields: Mapping[str, Any], file: str, place: str) -> None:
        self._file = file
        self._place = place
        self._left = dict(fields)
        self.asked: set[str] = set()

    @property
    def left(self) -> list[str]:
        """The fields that have not been taken, in their order."""
        return list(self._left)

    def where(self, field: str) -> str:
        """Return the place of a field for errors: on one line, of bounded length."""
        place = f"{self._place}{field}"[:PLACE_MAX]
        plain = "".join(each if each.isprintable() else "?" for each in place)
        return f"{self._file}: {plain}"

    def wrong(self, field: str, expected: str, found: object) -> DefinitionInvalid:
        """Return the error for a field of the wrong kind."""
        return DefinitionInvalid(f"{self.where(field)}: expected {expected}, found {shown(found)}")

    def missing(self, field: str, expected: str) -> DefinitionInvalid:
        """Return the error for a required field that is missing or misspelled."""
        if other := alike(field, self._left):
            hint = f"; did you mean {field} instead of {other[:SHOWN_MAX]}?"
        else:
            hint = f", expected {expected}"
        return DefinitionInvalid(f"{self.where(field)}: is missing{hint}")

    def has(self, field: str) -> bool:
        """Return whether an optional field is there and has not been taken."""
        self.asked.add(field)
        return field in self._left

    def raw(self, field: str) -> Any:
        """Take the value of a field, whatever its type, or None."""
        self.asked.add(field)
        return self._left.pop(field, None)

    def says(self, field: str, text: str) -> bool:
        """Return whether a field is just this text; take it then."""
        if not self.has(field) or self._left[field] != text:
            return False
        self.raw(field)  # taken, or `finish` would call it unknown
        return True

    def take(self, field: str, kind: type, expected: str) -> Any:
        """Take the value of a field of this type, or None."""
        found = self.raw(field)
        # A TOML boolean is a Python int as well.
        if found is not None and (not isinstance(found, kind) or isinstance(found, bool)):
            raise self.wrong(field, expected, found)
        return found

    def text(self, field: str, default: str | None = None, expected: str = "a text") -> str:
        """Take a text; `default` None makes the field required."""
        found: str | None = self.take(field, str, expected)
        if found is not None:
            return found
        if default is None:
            raise self.missing(field, expected)
        return default

    def texts(self, field: str, expected: str) -> list[str]:
        """Take a required list of texts, at least one."""
        found: list[str] | None = self.take(field, list, expected)
        if found is None:
            raise self.missing(field, expected)
        if not found or not all(isinstance(text, str) for text in found):
            raise self.wrong(field, expected, found)
        return found

    def checked(self, field: str, fits: Callable[[str], object], expected: str) -> str:
        """Take a required text for which `fits` returns something true."""
        found = self.text(field, expected=expected)
        if not fits(found):
            raise self.wrong(field, expected, found)
        return found

    def secret(
        self,
        field: str,
        form: re.Pattern[str],
        expected: str,
        parse: Callable[[str], object] = str,
        refuses: type[Exception] | tuple[type[Exception], ...] = ValueError,
    ) -> str:
        """Take a required address that no error repeats: it may hold a password.

        Args:
            field: its name.
            form: what it looks like.
            expected: what the error says.
            parse: reads it as its library does, whose own errors may have the password.
            refuses: the errors by which `parse` refuses it.
        """
        found = self.text(field, expected=expected)
        if not form.fullmatch(found):
            raise DefinitionInvalid(f"{self.where(field)}: expected {expected}")
        if not _has_ports(found):
            # A password with one of these ends the host there, and would be shown as a path.
            raise DefinitionInvalid(
                f"{self.where(field)}: expected {expected}, in which a password has %2F for /, "
                "%23 for #, %3F for ? and %5B for ["
            )
        try:
            parse(found)
        except refuses:
            raise DefinitionInvalid(f"{self.where(field)}: expected {expected}") from None
        return found

    def count(self, field: str, most: int = COUNT_MAX) -> int | None:
        """Take a whole number above 0, or None."""
        expected = f"a whole number from 1 to {most}"
        found: int | None = self.take(field, int, expected)
        if found is not None and not 1 <= found <= most:
            raise self.wrong(field, expected, found)
        return found

    def flag(self, field: str, default: bool) -> bool:
        """Take true or false."""
        found = self.raw(field)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self.wrong(field, "true or false", found)
        return found

    def table(self, field: str, expected: str = "a table") -> TomlTable:
        """Take a required table inside this one."""
        found = self.take(field, dict, expected)
        if found is None:
            raise self.missing(field, expected)
        return TomlTable(found, self._file, f"{self._place}{field}.")

    def finish(self, elsewhere: Mapping[str, str] | None = None) -> None:
        """Refuse what has not been taken; `elsewhere` are fields that belong to another place."""
        named = elsewhere or {}
        for field in self._left:
            if field in named:
                raise DefinitionInvalid(f"{self.where(field)}: {named[field]}")
            if other := alike(field, [*self.asked, *named]):
                hint = f"did you mean {other}?"
            else:
                hint = f"known are {', '.join(sorted(self.asked))}"
            raise DefinitionInvalid(f"{self.where(field)}: unknown field; {hint}")


def hosts_of(address: str) -> str:
    """Return the hosts of an address with their ports, without user and password."""
    return urlsplit(address).netloc.rpartition("@")[2]


def place_of(address: str) -> str:
    """Return the hosts and the path of an address, without user, password and parameters."""
    return f"{hosts_of(address)}{urlsplit(address).path}"


def _has_ports(address: str) -> bool:
    """Return whether what follows the hosts of an address can be their ports."""
    try:
        return all(urlsplit(f"//{host}").port != 0 for host in hosts_of(address).split(","))
    except ValueError:
        return False


def alike(field: str, others: Iterable[str]) -> str | None:
    """Return which of other names is nearly the same, or None; ignore capitals."""
    by_name = {other.lower(): other for other in others}
    found = difflib.get_close_matches(field.lower(), by_name, 1, ALIKE_MIN)
    return by_name[found[0]] if found else None


def shown(found: object) -> str:
    """Return a value as in the file, shortened and without a password."""
    text = json.dumps(found, ensure_ascii=False, default=str)
    return _CREDENTIALS.sub("//...@", text)[:SHOWN_MAX]


# --- tables; each error is one sentence with the line

_PLACED = re.compile(r"(.*) \(at (?:(line \d+, column \d+)|end of document)\)", re.DOTALL)
_NAMES = re.compile(r"\((['\"].*)\)")  # how Python writes the parts of a dotted name
_QUOTES = 'a text needs quotes, such as "1s"'
# The parser names only the character that it cannot take; these are the usual reasons.
_ADVICE = {
    "Invalid value": _QUOTES,
    "Expected newline or end of document after a statement": _QUOTES,
    "Illegal character '\\n'": "the quote at the end of a text is missing",
    "Unterminated string": "the quote at the end of a text is missing",
    "Unclosed array": "a comma between two values is missing, or ] at the end",
    "Unclosed inline table": "a comma between two fields is missing, or } at the end",
    "Invalid initial character for a key part": (
        "write a table in braces on one line, without a comma at its end"
    ),
    "Cannot overwrite a value": "the same field is there twice",
    "Unescaped '\\' in a string": "write \\\\ for a backslash, or put the text in single quotes",
}


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a file.

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
        raise DefinitionInvalid(f"{path}: line {line}: not UTF-8: save the file as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise DefinitionInvalid(f"{path}: {_sentence(str(error))}") from None
    except RecursionError:
        raise DefinitionInvalid(f"{path}: lists or tables are nested too deep") from None
    except ValueError:  # of Python, which reads no number of thousands of digits
        raise DefinitionInvalid(f"{path}: a number has too many digits") from None


def _sentence(said: str) -> str:
    """Return the place before the reason, and what to do if that is known."""
    found = _PLACED.fullmatch(said)
    if found is None:
        return f"not TOML, {said}"
    reason, line = found.groups()
    advice = f"; {_ADVICE[reason]}" if line and reason in _ADVICE else ""
    plain = _NAMES.sub(_dotted, reason[:1].lower() + reason[1:])
    return f"{line or 'at the end'}: not TOML, {plain}{advice}"


def _dotted(names: re.Match[str]) -> str:
    return ".".join(re.findall(r"['\"](.*?)['\"]", names[1]))


# --- filters, field paths and lists in a table; errors have the position in the text

PATHS = 'field paths, such as ["/symbol", "/venue"]'

Read = TypeVar("Read")


def refused(
    table: TomlTable, field: str, error: KeysError, position: int | None = None
) -> DefinitionInvalid:
    """Return the error for a malformed text; `position` (0-based) replaces the error's own."""
    at = error.position if position is None else position
    place = table.where(field) if at is None else f"{table.where(field)}, position {at}"
    return DefinitionInvalid(f"{place}: {error.detail}")


def read_filter(table: TomlTable) -> Filter | None:
    """Take the field `filter`, if there is one."""
    if not table.has("filter"):
        return None
    # Here: filters need RE2, which a process that only ingests does without.
    from tidegate.keys.filter import Filter

    text = table.checked("filter", str.strip, "a filter, such as /qty > 0")
    try:
        return Filter.parse(text)
    except KeysError as error:
        raise refused(table, "filter", error) from None


def read_file(table: TomlTable, field: str, folder: Path) -> Path | None:
    """Take the path of a file that a client reads later; None without the field.

    It is opened here: libraries do not say which file they miss. A relative path is below `folder`.
    """
    if not table.has(field):
        return None
    path = (folder / table.text(field)).resolve()
    try:
        path.open("rb").close()
    except OSError as error:
        reason = error.strerror or error
        raise DefinitionInvalid(f"{table.where(field)}: {path} cannot be read: {reason}") from None
    return path


def read_path(table: TomlTable, field: str, expected: str) -> FieldPath:
    """Take a required field path."""
    text = table.text(field, expected=expected)
    try:
        return FieldPath.parse(text)
    except KeysError as error:
        raise refused(table, field, error) from None


def read_paths(table: TomlTable, field: str) -> KeySpec:
    """Take a required list of field paths, at least one."""
    return read_list(table, field, PATHS, KeySpec.of)


def read_list(
    table: TomlTable, field: str, expected: str, parse: Callable[[list[str]], Read]
) -> Read:
    """Parse a required list of texts; errors of `parse` have positions in the last text.

    It is asked for one text more each time, so that the first which is wrong is the one named.
    """
    texts = table.texts(field, expected)
    for at in range(len(texts)):
        try:
            read = parse(texts[: at + 1])
        except KeysError as error:
            raise refused(table, f"{field}[{at}]", error) from None
    return read


def bracketed(texts: list[str]) -> tuple[str, int]:
    """Return a list as options spell it, and its start if the last text starts at 0."""
    text = f"[{','.join(texts)}]"
    return text, len(texts[-1]) + 1 - len(text)


# --- names

RECORDS = "records"
"""As `from`: the records that a topic has, which its journal may no longer hold."""

STREAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
