"""The JavaScript client by itself: its own tests, its types, and the package that npm would get."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import dev
import tidegate
from tests.support.deadlines import HANGS_S
from tests.support.outside import node_command, require_tsc

CLIENT = dev.ROOT / "clients" / "js"
TESTS = sorted(Path(__file__).parent.glob("*.test.mjs"))


@pytest.mark.system
def test_by_node() -> None:
    ended = subprocess.run(
        [*node_command(), "--test", *TESTS], capture_output=True, text=True, timeout=HANGS_S
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.nightly
def test_types_are_sound_and_declarations_can_be_made(tmp_path: Path) -> None:
    command = [require_tsc(), "--project", str(CLIENT / "tsconfig.json")]
    ended = subprocess.run(
        [*command, "--outDir", str(tmp_path)], capture_output=True, text=True, timeout=HANGS_S
    )
    assert (ended.returncode, ended.stdout) == (0, "")
    declared = (tmp_path / "client.d.ts").read_text()
    assert "export function connect(" in declared
    # What a program in TypeScript writes: the block of the documentation, and mistakes in it.
    page = (dev.ROOT / "docs" / "javascript.md").read_text()
    block = re.findall(r"```ts\n(.*?)```", page, re.DOTALL)[0]
    wrong = ["all[0].nothing;", 'quotes.get("IBM")?.value.nothing;', 'quotes.state === "gone";']
    lines = [*block.replace("@tidegate/client", "./client").splitlines(), *wrong]
    (tmp_path / "use.ts").write_text("\n".join(lines))
    given = ["--strict", "--noEmit", "--target", "es2022", "--lib", "es2022,dom"]
    modules = ["--module", "es2022", "--moduleResolution", "node"]
    command = [require_tsc(), *given, *modules, str(tmp_path / "use.ts")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S)
    found = [int(line) for line in re.findall(r"use\.ts\((\d+),", ended.stdout)]
    assert found == list(range(len(lines) - 2, len(lines) + 1)), ended.stdout


@pytest.mark.nightly
def test_a_wrong_type_is_seen(tmp_path: Path) -> None:
    for name in ("client.js", "client", "adapters"):
        (tmp_path / name).symlink_to(CLIENT / name)
    (tmp_path / "tsconfig.json").write_text(
        (CLIENT / "tsconfig.json").read_text().replace('"adapters"]', '"adapters", "wrong.js"]')
    )
    lines = [
        'import { connect } from "./client.js";',
        'const rows = connect("").subscribe("px", { interval: 100 });',
        'rows.addEventListener("change", ({ added }) => added[0].id.length);',
        'rows.addEventListener("late", ({ detail }) => detail.age_ms);',
        'rows.addEventListener("state", () => rows.state.length);',
        'connect("").subscribe("px", { interval: true });',
        'rows.addEventListener("change", ({ nothing }) => nothing);',
    ]
    (tmp_path / "wrong.js").write_text("\n".join(lines))
    command = [require_tsc(), "--project", str(tmp_path), "--outDir", str(tmp_path / "types")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S)
    assert re.findall(r"wrong\.js\((\d+),", ended.stdout) == ["6", "7"]


def test_the_package_holds_every_module_and_what_npm_shows() -> None:
    """`npm pack` takes what `files` names; `prepack` makes the types, which are in no checkout."""
    declared = package()
    named = [CLIENT / name for name in declared["files"] if name != "types"]
    assert (CLIENT / "README.md").is_file()
    held = {each for path in named for each in ([path] if path.is_file() else path.glob("*.js"))}
    assert held == set(CLIENT.rglob("*.js"))
    for entry in (".", "./adapters/*.js"):
        target = declared["exports"][entry]["default"].replace("*", "react")
        assert CLIENT / target in held
    assert declared["version"] == tidegate.__version__


def test_it_needs_nothing_else_at_run_time() -> None:
    assert "dependencies" not in package()
    for path in CLIENT.rglob("*.js"):
        lines = [line for line in path.read_text().splitlines() if line.startswith("import ")]
        assert all(re.search(r' from "(?:\./|\.\./client/)', line) for line in lines), path


def package() -> dict[str, Any]:
    return dict(json.loads((CLIENT / "package.json").read_text()))
