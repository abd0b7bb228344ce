"""The JavaScript client by itself: its own tests, its types, and the package that npm would get."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tests.js.package import CLIENT, PAGE, commands_of, copy_packages, run_commands
from tests.support.deadlines import HANGS_S
from tests.support.outside import node_command, require_tsc

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
    assert "export function connect(" in (tmp_path / "client.d.ts").read_text()


def test_the_pages_make_and_install_the_same_package() -> None:
    made, installed = commands_of(CLIENT / "README.md")
    assert commands_of(PAGE)[:2] == [made, installed]
    assert installed.endswith(f"/tidegate-client-{tidegate.__version__}.tgz\n")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has installed the package, made as the page says."""
    folder = tmp_path_factory.mktemp("npm")
    checkout, project = folder / "tidegate", folder / "project"
    copy_packages(checkout)
    project.mkdir()
    (project / "package.json").write_text('{"type": "module"}')
    made, installed, *_ = commands_of(PAGE)
    run_commands(made, checkout)
    run_commands(installed, project)
    return project


@pytest.mark.nightly
def test_a_program_in_typescript_compiles_against_the_package(project: Path) -> None:
    """The block of the documentation does, and mistakes in it are seen; nothing else is wrong.

    Declarations are checked as well: `skipLibCheck` is off by default.
    """
    block = re.findall(r"```ts\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    adapters = (
        f'import * as adapter{at} from "@tidegate/client/adapters/{path.name}"; adapter{at};'
        for at, path in enumerate(sorted((CLIENT / "adapters").glob("*.js")))
    )
    wrong = ["all[0].nothing;", 'quotes.get("IBM")?.value.nothing;', 'quotes.state === "gone";']
    lines = [*adapters, *block.splitlines(), *wrong]
    (project / "use.ts").write_text("\n".join(lines))
    given = ["--strict", "--noEmit", "--target", "es2022", "--lib", "es2022,dom"]
    for modules in (["nodenext"] * 2, ["es2022", "bundler"]):
        command = [require_tsc(), *given, "--module", modules[0], "--moduleResolution", modules[1]]
        ended = subprocess.run(
            [*command, "use.ts"], cwd=project, capture_output=True, text=True, timeout=HANGS_S
        )
        found = [line.partition(":")[0] for line in ended.stdout.splitlines() if "error" in line]
        assert [re.sub(r",\d+", "", place) for place in found] == [
            f"use.ts({at})" for at in range(len(lines) - 2, len(lines) + 1)
        ], ended.stdout


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
