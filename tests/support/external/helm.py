"""`helm template` for the chart of `deploy/helm`: by helm where it is installed, else by this.

What is here knows the few words of Go's templates and of Helm that the chart uses, and refuses
others. So the chart stays plain, and a test needs no further program.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.support.deadlines import HANGS_S

RELEASE = {"Name": "gw", "Namespace": "desk"}
_TAG = re.compile(r"(\s*\{\{-|\{\{)\s*(.*?)\s*(-\}\}\s*|\}\})", re.DOTALL)
_WORD = re.compile(r"\(|\)|\||:=|,|\"[^\"]*\"|[^\s()|,]+")


class ChartFailed(Exception):
    """The chart refuses the values."""


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a rendered chart."""
    return [found for found in YAML(typ="safe").load_all(text) if found]


def values_of(chart: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The chart's values with some changed."""
    return _merged(YAML(typ="safe").load(chart / "values.yaml"), changes)


def has_helm() -> bool:
    """Whether helm is installed; no test needs it."""
    return shutil.which("helm") is not None


def helm(chart: Path, changes: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """What helm renders; `folder` gets the values.

    Raises:
        ChartFailed: helm refuses.
    """
    file = folder / "values.json"
    file.write_text(json.dumps(changes))
    words = [RELEASE["Name"], str(chart), "--namespace", RELEASE["Namespace"]]
    ended = subprocess.run(
        ["helm", "template", *words, "--values", str(file)],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    if ended.returncode:
        raise ChartFailed(ended.stderr)
    return documents(ended.stdout)


def render(chart: Path, changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the templates give.

    Raises:
        ChartFailed: a template has failed on purpose.
    """
    root = {"Values": values_of(chart, changes), "Release": RELEASE}
    return [
        document
        for path in sorted((chart / "templates").glob("*.yaml"))
        for document in documents(_Template(path.read_text("utf-8")).render(root))
    ]


class _Template:
    """One file: texts and tags in turn."""

    def __init__(self, text: str) -> None:
        # The beginning and the end of a tag tell if white space around it is dropped.
        self._texts: list[str] = []
        self._tags: list[str] = []
        at = 0
        for tag in _TAG.finditer(text):
            self._texts.append(text[at : tag.start()] + ("" if "-" in tag[1] else tag[1][:-2]))
            self._tags.append(tag[2])
            at = tag.end() if "-" in tag[3] else tag.start(3) + 2
        self._texts.append(text[at:])
        self._at = 0

    def render(self, root: Mapping[str, Any]) -> str:
        self._at = 0
        return self._block({"$": root, ".": root}, is_shown=True)

    def _block(self, scope: Mapping[str, Any], *, is_shown: bool) -> str:
        """Render up to the `else` or `end` of this block, which is left to the caller."""
        found = [self._texts[self._at]]
        while self._at < len(self._tags):
            tag = self._tags[self._at]
            word = tag.partition(" ")[0]
            if word in ("else", "end"):
                break
            self._at += 1
            if word == "if":
                found.append(self._if(tag, scope, is_shown=is_shown))
            elif word == "range":
                found.append(self._range(tag, scope, is_shown=is_shown))
            elif is_shown:
                found.append(_shown(_value(tag, scope)))
            found.append(self._texts[self._at])
        return "".join(found) if is_shown else ""

    def _if(self, tag: str, scope: Mapping[str, Any], *, is_shown: bool) -> str:
        holds = is_shown and bool(_value(tag.removeprefix("if "), scope))
        found = self._block(scope, is_shown=holds)
        if self._tags[self._at] == "else":
            self._at += 1
            found += self._block(scope, is_shown=is_shown and not holds)
        assert self._tags[self._at] == "end"
        self._at += 1
        return found

    def _range(self, tag: str, scope: Mapping[str, Any], *, is_shown: bool) -> str:
        names, _, expression = tag.removeprefix("range ").rpartition(":=")
        items = _value(expression, scope) if is_shown else []
        pairs = sorted(items.items()) if isinstance(items, Mapping) else list(enumerate(items))
        begun, found = self._at, []
        for key, value in pairs:
            self._at = begun
            names_found = dict(zip(re.findall(r"\$\w+", names), (key, value), strict=False))
            found.append(self._block({**scope, ".": value, **names_found}, is_shown=True))
        if not pairs:
            self._block(scope, is_shown=False)
        assert self._tags[self._at] == "end"
        self._at += 1
        return "".join(found)


def _value(expression: str, scope: Mapping[str, Any]) -> Any:
    words = _WORD.findall(expression)
    value = _piped(words, scope)
    assert not words, f"not understood: {expression}"
    return value


def _piped(words: list[str], scope: Mapping[str, Any]) -> Any:
    """Take calls up to the end of the words or of the parenthesis, each with the one before."""
    value = _call(words, scope, [])
    while words and words[0] == "|":
        words.pop(0)
        value = _call(words, scope, [value])
    return value


def _call(words: list[str], scope: Mapping[str, Any], last: list[Any]) -> Any:
    if words[0] in FUNCTIONS:
        function = FUNCTIONS[words.pop(0)]
        given = []
        while words and words[0] not in ("|", ")"):
            given.append(_operand(words, scope))
        return function(*given, *last)
    assert not last, f"no function: {words[0]}"
    return _operand(words, scope)


def _operand(words: list[str], scope: Mapping[str, Any]) -> Any:
    word = words.pop(0)
    if word == "(":
        value = _piped(words, scope)
        assert words.pop(0) == ")"
        return value
    if word.startswith('"'):
        return shlex.split(word)[0]
    if word.isdigit():
        return int(word)
    start, *path = word.split(".")
    value = scope[start or "."]
    for name in filter(None, path):
        value = value[name]
    return value


def _fail(reason: str) -> str:
    raise ChartFailed(reason)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    # As Go writes JSON, which may stand in a page of HTML.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _any_of(*given: Any) -> Any:
    return next((value for value in given if value), given[-1])


def _all_of(*given: Any) -> Any:
    return next((value for value in given if not value), given[-1])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "and": _all_of,
    "fail": _fail,
    "gt": lambda one, other: one > other,
    "int": int,
    "not": lambda value: not value,
    "or": _any_of,
    "quote": lambda value: json.dumps(_shown(value)),
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "toJson": _json,
}


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _merged(base: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = deepcopy(base)
    for name, value in changes.items():
        old = found.get(name)
        found[name] = (
            _merged(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
        )
    return found


def names_used(chart: Path) -> Sequence[str]:
    """The values that templates ask for, such as `redis.key`."""
    texts = [path.read_text("utf-8") for path in (chart / "templates").glob("*.yaml")]
    return sorted({name for text in texts for name in re.findall(r"\.Values\.([\w.]+)", text)})
