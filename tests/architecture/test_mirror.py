"""Every module has a test file of its name, or stands here with the reason why it has none."""

from __future__ import annotations

from pathlib import Path

from dev import ROOT
from tests.architecture.rules import PACKAGES, modules

# Path of the module: why no test file bears its name.
UNMIRRORED: dict[str, str] = {}
NAMES_ONLY = ("__init__.py", "__main__.py", "errors.py")  # names and doors, without behaviour


def mirrored(module: Path, tests: set[str]) -> bool:
    """Whether a module has its test: app/sse/frame.py in tests/app/**/test_[sse_]frame.py."""
    package, *folders = module.parent.parts
    names = {"_".join(["test", *folders[start:], module.stem]) for start in range(len(folders) + 1)}
    return any(test.startswith(f"tests/{package}/") and Path(test).stem in names for test in tests)


def missing(names: list[Path], tests: set[str]) -> list[str]:
    """The modules without a test, without a reason."""
    return [
        name.as_posix()
        for name in names
        if name.name not in NAMES_ONLY
        and name.as_posix() not in UNMIRRORED
        and not mirrored(name, tests)
    ]


def tree() -> tuple[list[Path], set[str]]:
    """The packages' modules and the test files, relative to the root."""
    tests = {path.relative_to(ROOT).as_posix() for path in modules("tests")}
    return [path.relative_to(ROOT) for path in modules(*PACKAGES)], tests


def test_every_module_has_its_test() -> None:
    untested = missing(*tree())
    assert not untested, "without a test file of their name:\n" + "\n".join(untested)


def test_every_exception_is_still_needed() -> None:
    names, tests = tree()
    by_name = {name.as_posix(): name for name in names}
    assert [name for name in UNMIRRORED if name not in by_name] == []
    assert [name for name in UNMIRRORED if mirrored(by_name[name], tests)] == []


def test_a_module_without_its_test_is_found() -> None:
    names = [Path("keys/spec.py"), Path("app/sse/frame.py"), Path("app/__init__.py")]
    assert missing(names, {"tests/conflation/test_spec.py"}) == ["keys/spec.py", "app/sse/frame.py"]
    assert missing(names, {"tests/keys/test_spec.py", "tests/app/sse/test_frame.py"}) == []
    assert missing(names, {"tests/keys/test_spec.py", "tests/app/test_sse_frame.py"}) == []
