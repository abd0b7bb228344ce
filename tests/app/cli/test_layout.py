"""Packages that belong together are found together."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.cli import layout


def test_this_checkout_is_sound() -> None:
    assert layout.stray_package() is None


def test_a_package_elsewhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strays").mkdir()
    (tmp_path / "strays" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(layout, "PACKAGES", ("app", "strays"))
    assert f"a package strays in {tmp_path}" in (layout.stray_package() or "")


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PACKAGES", ("app", "no_such_package"))
    assert "no_such_package is missing" in (layout.stray_package() or "")
