"""What the project declares that it needs, and which modules that gives."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from typing import Any

from packaging.requirements import Requirement

from dev import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def declared(extra: str = "") -> set[Requirement]:
    """What an extra brings besides the base, its own extras unfolded; without one, the base."""
    lines = EXTRAS[extra] if extra else PROJECT["dependencies"]
    found: set[Requirement] = set()
    for requirement in map(Requirement, lines):
        if requirement.name == "tidegate":
            found.update(*(declared(other) for other in requirement.extras))
        else:
            found.add(requirement)
    return found


def modules(names: set[str]) -> set[str]:
    """The top-level modules of distributions."""
    plain = {_plain(name) for name in names}
    given = _owners().items()
    return {module for module, owners in given if plain & {_plain(name) for name in owners}}


@cache
def _owners() -> Mapping[str, list[str]]:
    return packages_distributions()


def installed_with(*extras: str) -> set[str]:
    """The distributions that the base and these extras install, all that they need included."""
    wanted = [*declared(), *(it for extra in extras for it in declared(extra))]
    found: set[str] = set()
    seen: set[str] = set()
    while wanted:
        requirement = wanted.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        found.add(_plain(requirement.name))
        try:
            needs = [Requirement(line) for line in requires(requirement.name) or ()]
        except PackageNotFoundError:  # it is for another system
            continue
        for need in needs:
            asked = ({"extra": extra} for extra in ("", *requirement.extras))
            if need.marker is None or any(need.marker.evaluate(it) for it in asked):
                wanted.append(need)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
