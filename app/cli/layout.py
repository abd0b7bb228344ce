"""A check at start-up that the packages belong together: their names are not rare ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGES = ("app", "conflation", "keys")


def stray_package() -> str | None:
    """One sentence if a package is missing, or is another project's; None if all is well."""
    places = {name: _place(name) for name in PACKAGES}
    here = Path(__file__).resolve().parents[2]
    for name, place in places.items():
        if place is None:
            return f"Tidegate's package {name} is missing: it belongs into {here}."
        if place != here:
            return (
                f"Python finds a package {name} in {place} before Tidegate's own in {here}: "
                "app, conflation and keys must share one folder."
            )
    return None


def _place(name: str) -> Path | None:
    """The folder that holds a package, which is not imported for it."""
    found = importlib.util.find_spec(name)
    folders = None if found is None else found.submodule_search_locations
    return Path(next(iter(folders))).resolve().parent if folders else None
