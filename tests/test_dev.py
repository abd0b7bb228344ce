"""Set-up says in one sentence what is missing, and gets out of the way when nothing is."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import dev
from tests.support.checkouts import mark_set_up

UNREACHABLE = "http://127.0.0.1:9/simple"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What set-up reads, in a folder of its own."""
    folder = tmp_path / "checkout"
    shutil.copytree(dev.ROOT / "requirements", folder / "requirements")
    for name in ("dev.py", "pyproject.toml"):
        shutil.copy(dev.ROOT / name, folder)
    return folder


@pytest.fixture
def set_up(checkout: Path) -> Path:
    """A checkout that is set up without Spark; its commands tell how they were called."""
    commands = checkout / ".venv" / "bin"
    commands.mkdir(parents=True)
    write_script(commands / "tidegate", 'echo "pid $$:" "$@"')
    write_script(commands / "python", "echo the set-up ran again; exit 9")
    mark_set_up(checkout, "base")
    return checkout


def write_script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def run_python(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python in a folder with nothing of this machine's settings but the given."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PATH": os.defpath, "HOME": str(folder), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def run_dev(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, standard output and the last line of standard error of dev.py."""
    ended = run_python(folder, "dev.py", *arguments, **environment)
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stdout, (ended.stderr.splitlines() or [""])[-1]


@pytest.mark.system
def test_without_a_verb_it_shows_the_verbs(checkout: Path) -> None:
    code, out, _ = run_dev(checkout)
    assert code == 0
    verbs = ("demo", "test", "setup", "lint", "bench", "docs", "site", "lowest")
    assert [verb for verb in verbs if f"dev.py {verb} " not in out] == []


@pytest.mark.system
def test_an_unknown_verb_is_wrong_usage(checkout: Path) -> None:
    code, out, said = run_dev(checkout, "serve")
    assert (code, out) == (2, "")
    assert "'serve'" in said


def test_an_old_python_can_read_it_and_so_say_that_it_is_too_old() -> None:
    ast.parse((dev.ROOT / "dev.py").read_text(), feature_version=(3, 8))


@pytest.mark.system
def test_a_missing_java_is_one_sentence(checkout: Path, tmp_path: Path) -> None:
    code, out, said = run_dev(checkout, "demo", PATH=str(tmp_path))
    assert (code, out) == (78, "")
    assert "Java 17 or newer and none was found" in said
    assert "--no-spark" in said
    assert not (checkout / ".venv").exists()


@pytest.mark.system
def test_an_old_java_is_one_sentence(checkout: Path, tmp_path: Path) -> None:
    write_script(tmp_path / "jdk" / "bin" / "java", "exit 1")
    (tmp_path / "jdk" / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="11.0.2"\n')
    code, _, said = run_dev(checkout, "demo", JAVA_HOME=str(tmp_path / "jdk"))
    assert code == 78
    assert "this machine's is 11" in said


@pytest.mark.system
def test_a_java_without_its_release_file_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    java = tmp_path / "jdk" / "bin" / "java"
    write_script(java, "echo 'openjdk version \"21.0.1\" 2023-10-17' >&2")
    assert dev.java_version() == 21
    write_script(java, "echo 'java version \"1.8.0_292\"' >&2")
    assert dev.java_version() == 8


@pytest.mark.system
def test_a_python_without_venv_is_one_sentence(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['ensurepip'] = None\n")
    code, out, said = run_dev(checkout, "demo", "--no-spark", PYTHONPATH=str(tmp_path))
    assert (code, out) == (78, "")
    assert "python3-venv" in said


@pytest.mark.system
def test_a_folder_that_is_no_environment_is_left_alone(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "mine.txt").touch()
    code, _, said = run_dev(checkout, "setup")
    assert code == 78
    assert "not a virtual environment" in said
    assert (checkout / ".venv" / "mine.txt").exists()


@pytest.mark.nightly  # it makes an environment
def test_a_missing_network_is_one_sentence(checkout: Path) -> None:
    index = {"PIP_INDEX_URL": UNREACHABLE, "UV_DEFAULT_INDEX": UNREACHABLE}
    code, out, said = run_dev(checkout, "demo", "--no-spark", **index)
    assert (code, out) == (3, "")
    assert "cannot be reached" in said
    assert not (checkout / ".venv" / "tidegate-setup").exists()


@pytest.mark.system
def test_a_second_start_only_becomes_the_command(set_up: Path) -> None:
    command = [sys.executable, "dev.py", "demo", "--no-spark", "--for", "1s"]
    with subprocess.Popen(command, cwd=set_up, stdout=subprocess.PIPE, text=True) as started:
        out, _ = started.communicate()
    assert out == f"pid {started.pid}: demo --no-spark --for 1s\n"
    assert started.returncode == 0


@pytest.mark.system
@pytest.mark.parametrize("changed", ["requirements/base.lock"])
def test_a_changed_lock_or_project_is_set_up_again(set_up: Path, changed: str) -> None:
    with (set_up / changed).open("a") as file:
        file.write("\n# changed\n")
    assert "is not a virtual environment" in run_dev(set_up, "demo", "--no-spark")[2]


@pytest.mark.parametrize(
    ("installed", "wanted", "enough"),
    [
        ("base", "base", True),
        ("base", "run", False),
        ("run", "all", False),
        ("run", "base", True),
        ("all", "base", True),
        ("all", "all", True),
        ("", "base", False),
    ],
)
def test_a_fuller_set_up_serves_a_smaller_wish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str, wanted: str, enough: bool
) -> None:
    monkeypatch.setattr(dev, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(dev, "STAMP", tmp_path / "stamp")
    assert not dev.is_set_up(wanted, "digest")
    dev.STAMP.write_text(f"{installed} digest")
    assert dev.is_set_up(wanted, "digest") is enough
    assert not dev.is_set_up(wanted, "another digest")


def test_installers_are_not_led_astray(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_PYTHON", "VIRTUAL_ENV", "PIP_TARGET"):
        monkeypatch.setenv(name, "/elsewhere")
    assert "/elsewhere" not in dev.environment().values()
    assert dev.environment()["UV_PYTHON_DOWNLOADS"] == "never"


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of links in a checkout whose packages are empty."""
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    for name in ("tidegate", *dev.PACKAGES):
        (tmp_path / name).mkdir()
    return tmp_path / "tidegate"


def test_every_link_of_the_checkout_is_known() -> None:
    found = {path.name for path in (dev.ROOT / "tidegate").iterdir() if path.is_symlink()}
    assert found == set(dev.PACKAGES)


def test_links_that_became_text_files_or_are_missing_are_put_back(links: Path) -> None:
    (links / "app").write_text("../app")
    (links / "keys").write_text("../keys\n")
    dev.mend_links()
    targets = {str((links / name).readlink()) for name in dev.PACKAGES}
    assert targets == {f"../{name}" for name in dev.PACKAGES}
    dev.mend_links()
    assert sorted(path.name for path in links.iterdir()) == sorted(dev.PACKAGES)


def test_what_is_no_link_is_left_alone(links: Path) -> None:
    (links / "app").mkdir()
    (links / "clients").write_text("mine")
    with pytest.raises(dev.SetUpFailure, match="move it away"):
        dev.mend_links()
    assert (links / "app").is_dir()
    assert (links / "clients").read_text() == "mine"


def test_a_folder_that_takes_no_links_is_one_sentence(
    links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    (links / "app").write_text("../app")
    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(dev.SetUpFailure, match=r"core\.symlinks") as failed:
        dev.mend_links()
    assert failed.value.code == 78
    assert (links / "app").read_text() == "../app"


@pytest.mark.system
def test_set_up_mends_links_first(set_up: Path) -> None:
    (set_up / "tidegate").mkdir()
    (set_up / "tidegate" / "app").write_text("../app")
    assert run_dev(set_up, "demo", "--no-spark")[0] == 0
    assert (set_up / "tidegate" / "app").readlink() == Path("../app")


@pytest.mark.system
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"PYTHONDONTWRITEBYTECODE": "1"}, ":{root}/.venv/bytecode"),
        ({}, ":"),
    ],
)
def test_what_is_compiled_is_kept_where_only_the_project_looks(
    set_up: Path, given: dict[str, str], kept: str
) -> None:
    write_script(
        set_up / ".venv" / "bin" / "python",
        'echo "$PYTHONDONTWRITEBYTECODE:$PYTHONPYCACHEPREFIX"',
    )
    stamp = set_up / ".venv" / "tidegate-setup"
    stamp.write_text(stamp.read_text().replace("base", "all"))
    old = Path(f"{set_up}/.venv/bytecode{tempfile.gettempdir()}", "of-an-older-run")
    old.mkdir(parents=True)
    assert run_dev(set_up, "test", **given)[:2] == (0, kept.format(root=set_up) + "\n")
    assert old.exists() != bool(given)
