"""A TOML table taken apart field by field, so that nothing unknown is passed over."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pipeline.errors import DefinitionInvalid

NOT_YET = frozenset({"edge", "never"})
ONLY_WITH = {
    "rows_per_batch": "a source of kind tidegate, redis or kafka",
    "files_per_batch": "a source of kind files",
    "record_key": "grouping and projection",
    "watermark": "the table time",
}


class TomlTable:
    """A TOML table whose fields are taken one by one; what is left at the end is unknown."""

    def __init__(self, fields: dict[str, Any], file: str, place: str) -> None:
        self._file = file
        self._place = place
        self.left = dict(fields)

    def where(self, field: str) -> str:
        """Where a field stands, as errors name it."""
        return f"{self._file}: {self._place}{field}"

    def wrong(self, field: str, expected: str, found: object) -> DefinitionInvalid:
        """The error for a field of the wrong kind."""
        return DefinitionInvalid(f"{self.where(field)}: expected {expected}, found {found!r:.100}")

    def take(self, field: str, kind: type, expected: str) -> Any:
        """The value of a field, of this type, or None; it is known from now on."""
        found = self.left.pop(field, None)
        # A TOML boolean is a Python int as well.
        if found is not None and (not isinstance(found, kind) or isinstance(found, bool)):
            raise self.wrong(field, expected, found)
        return found

    def text(self, field: str, default: str | None = None, expected: str = "a text") -> str:
        """A text; `default` None makes the field required."""
        found: str | None = self.take(field, str, expected)
        if found is not None:
            return found
        if default is None:
            raise DefinitionInvalid(f"{self.where(field)}: is missing, expected {expected}")
        return default

    def checked(self, field: str, fits: Callable[[str], object], expected: str) -> str:
        """A required text for which `fits` gives something true."""
        found = self.text(field, expected=expected)
        if not fits(found):
            raise self.wrong(field, expected, found)
        return found

    def secret(self, field: str, form: re.Pattern[str], expected: str) -> str:
        """A required text of a form that no error repeats: it may hold a password."""
        found = self.text(field, expected=expected)
        if not form.fullmatch(found):
            raise DefinitionInvalid(f"{self.where(field)}: expected {expected}")
        return found

    def count(self, field: str) -> int | None:
        """A whole number above 0, or None."""
        found: int | None = self.take(field, int, "a whole number above 0")
        if found is not None and found < 1:
            raise self.wrong(field, "a whole number above 0", found)
        return found

    def flag(self, field: str, default: bool) -> bool:
        """True or false."""
        found = self.left.pop(field, default)
        if not isinstance(found, bool):
            raise self.wrong(field, "true or false", found)
        return found

    def table(self, field: str) -> TomlTable:
        """A required table inside this one."""
        found = self.take(field, dict, "a table")
        if found is None:
            raise DefinitionInvalid(f"{self.where(field)}: is missing, expected a table")
        return TomlTable(found, self._file, f"{self._place}{field}.")

    def finish(self) -> None:
        """Refuse what has not been taken."""
        for field in self.left:
            if field in NOT_YET:
                raise DefinitionInvalid(f"{self.where(field)}: not available yet")
            if field in ONLY_WITH:
                raise DefinitionInvalid(f"{self.where(field)}: only with {ONLY_WITH[field]}")
            raise DefinitionInvalid(f"{self.where(field)}: unknown field")
