"""What is installed here: versions, the benchmark suite, and the completion of the shells."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from tidegate.app.cli.errors import DONE, CommandError
from tidegate.app.cli.terminal import say, tell

ANSWER_S_MAX = 10
PROGRAM = "tidegate"
COMPLETION_VARIABLE = "_TIDEGATE_COMPLETE"
ZSH_HEAD = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"


@click.command()
def version() -> int:
    """Versions of Tidegate, Python, Spark, Java and Redis."""
    from tidegate.app.demo.java import java_version

    for name, found in (
        ("Tidegate", package_version("tidegate")),
        ("Python", platform.python_version()),
        ("Spark", package_version("pyspark")),
        ("Java", java_version()),
        ("Redis client", package_version("redis")),
        ("Redis server", redis_server_version()),
    ):
        tell(f"{name:<13} {found or 'not installed'}")
    return DONE


def package_version(name: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return version_of(name)
    except PackageNotFoundError:
        return None


def redis_server_version() -> str | None:
    """The version of the redis-server on PATH."""
    binary = shutil.which("redis-server")
    if binary is None:
        return None
    try:
        shown = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=ANSWER_S_MAX
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"v=(\S+)", shown)
    return found[1] if found else None


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("words", metavar="[SUITE]...", nargs=-1, type=click.UNPROCESSED)
def bench(words: tuple[str, ...]) -> int:
    """Run the benchmark suite of a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "bench" / "__main__.py").is_file() or not (root / "dev.py").is_file():
        raise CommandError(
            "the benchmark suite is a part of the source and not of an installed package: "
            "run python3 dev.py bench in a checkout"
        )
    from tidegate.app.cli.pipeline import become

    become([sys.executable, "-P", "-m", "bench", *words])


def show_completion(program: click.Command, shell: str) -> None:
    """Print the script that makes a shell complete the command."""
    tell(_script(program, shell))


def install_completion(program: click.Command, shell: str) -> None:
    """Write the script where the shell reads it at its start; doing it again changes nothing.

    fish reads all of its folder; bash and zsh get a line in their start-up file.
    """
    home = Path.home()
    if shell == "fish":
        configuration = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        script = configuration / "fish" / "completions" / f"{PROGRAM}.fish"
    else:
        user_files = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
        script = user_files / PROGRAM / f"completion.{shell}"
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(_script(program, shell) + "\n", "utf-8")
        if shell != "fish":
            folder = os.environ.get("ZDOTDIR") if shell == "zsh" else None
            _add_line(Path(folder or home) / f".{shell}rc", f". {shlex.quote(str(script))}")
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    tell(f"{shell} completion installed in {script}")
    say("It holds in shells that are opened from now on.")


def _script(program: click.Command, shell: str) -> str:
    found = get_completion_class(shell)
    assert found is not None, "the option takes no other shell"
    source = found(program, {}, PROGRAM, COMPLETION_VARIABLE).source()
    return (ZSH_HEAD if shell == "zsh" else "") + source


def _add_line(file: Path, line: str) -> None:
    text = file.read_text("utf-8") if file.exists() else ""
    if line not in text.splitlines():
        file.write_text(
            f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n", "utf-8"
        )
