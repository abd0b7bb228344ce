"""The installation: versions, extras, Java, and the completion of the shells."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
from click.shell_completion import get_completion_class

from tidegate.app.cli.terminal import (
    COMPLETION_VARIABLE,
    DONE,
    PROGRAM,
    CommandError,
    ConfigurationInvalid,
    print_line,
    print_note,
)

ANSWER_S_MAX = 10
JAVA_ANSWER_S_MAX = 30  # a busy machine takes seconds to start a virtual machine
JAVA_MIN = 17
ZSH_HEAD = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"

# The modules that each extra installs. A test compares them with the project file.
SERVER = (
    # Python 3.14 has backports.zstd in its standard library.
    *(("backports",) if sys.version_info < (3, 14) else ()),
    *(
        "anyio",
        "cryptography",
        "fastapi",
        "fastapi_offline",
        "httptools",
        "jsonschema_rs",
        "jwt",
        "prometheus_client",
        "pydantic",
        "pydantic_core",
    ),
    *("pydantic_settings", "re2", "redis", "sortedcontainers", "sse_starlette", "starlette"),
    "typing_extensions",
    "uvicorn",
)
SPARK = ("numpy", "pandas", "prometheus_client", "py4j", "pyarrow", "pyspark", "re2", "redis")
EXTRA_MODULES = {
    "server": SERVER,
    "demo": (*SERVER, "psutil"),
    "spark": SPARK,
    "plan": (*SPARK, "matplotlib"),
}


def need(verb: str, extra: str) -> None:
    """Check that an extra is installed, without importing any of it.

    Raises:
        ConfigurationInvalid: with the command that installs it.
    """
    if any(find_spec(name) is None for name in EXTRA_MODULES[extra]):
        raise ConfigurationInvalid(
            f"`tidegate {verb}` needs the extra {extra}, which is not installed: "
            f"{install_command(extra)}"
        )


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, from the same source.

    pip records a checkout, a wheel or a repository in `direct_url.json` (PEP 610), and nothing for
    a package of an index.
    """
    try:
        recorded = distribution("tidegate").read_text("direct_url.json")
    except PackageNotFoundError:  # run from a checkout that is not installed
        recorded = json.dumps({"url": Path(__file__).resolve().parents[2].as_uri()})
    wanted = f"tidegate[{extra}]"
    if recorded is None:
        return f"pip install {shlex.quote(wanted)}"
    source = json.loads(recorded)
    url = urlsplit(source["url"])
    if url.scheme != "file":
        prefix = f"{source['vcs_info']['vcs']}+" if "vcs_info" in source else ""
        return f"pip install {shlex.quote(f'{wanted} @ {prefix}{url.geturl()}')}"
    options = "-e " if source.get("dir_info", {}).get("editable") else ""
    return f"pip install {options}{shlex.quote(f'{unquote(url.path)}[{extra}]')}"


@click.command(epilog="\b\nExample:\n  tidegate version")
def version() -> int:
    """Show the versions of Tidegate, Python, Spark, Java and Redis."""
    for name, found in (
        ("Tidegate", package_version("tidegate")),
        ("Python", platform.python_version()),
        ("Spark", package_version("pyspark")),
        ("Java", java_version()),
        ("Redis client", package_version("redis")),
        ("Redis server", redis_server_version()),
    ):
        print_line(f"{name:<13} {found or 'not installed'}")
    return DONE


# From the metadata: importing PySpark for its version would take a second.
def package_version(name: str) -> str | None:
    """Return the version of an installed distribution."""
    try:
        return version_of(name)
    except PackageNotFoundError:
        return None


def redis_server_version() -> str | None:
    """Return the version of the redis-server on PATH."""
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


def java_version() -> str | None:
    """Return the version of the Java in $JAVA_HOME, else of the one on PATH; None without any."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    # Through links: /usr/bin/java points into the installation, whose root has the file.
    release = Path(java).resolve().parents[1] / "release"
    written = release.read_text(errors="replace") if release.is_file() else ""
    found = re.search(r'JAVA_VERSION="([^"]+)"', written)
    if found is None:  # not every vendor writes that file; running Java takes longer
        found = re.search(r'version "([^"]+)"', _version_output(java))
    return found[1] if found else None


def java_major(version: str) -> int:
    """Return the major version: 17 of `17.0.15`, 8 of `1.8.0_402`, 0 without a number."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


def missing_java() -> str | None:
    """Return one sentence if there is no Java that Spark can use; None if there is one."""
    version = java_version()
    if version is not None and java_major(version) >= JAVA_MIN:
        return None
    here = "none was found" if version is None else f"this machine's is {version}"
    return (
        f"Spark needs Java {JAVA_MIN} or newer and {here}: install one (Debian and Ubuntu: "
        "apt-get install default-jre-headless), or leave Spark out with --no-spark."
    )


def _version_output(java: str) -> str:
    try:
        return subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S_MAX
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def show_completion(program: click.Command, shell: str) -> None:
    """Print the script that makes a shell complete the command."""
    print_line(_script(program, shell))


def install_completion(program: click.Command, shell: str) -> None:
    """Write the script where the shell reads it at its start; a second time changes nothing.

    fish reads every file of its folder; bash and zsh need a line in their start-up file.
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
    print_line(f"{shell} completion installed in {script}")
    print_note("Open a new shell to use it.")


def _script(program: click.Command, shell: str) -> str:
    found = get_completion_class(shell)
    assert found is not None, "the option takes no other shell"
    source = found(program, {}, PROGRAM, COMPLETION_VARIABLE).source()
    return (ZSH_HEAD if shell == "zsh" else "") + source


def _add_line(file: Path, line: str) -> None:
    text = file.read_text("utf-8") if file.exists() else ""
    # Compared with whole lines: the file is the user's, and a second install adds nothing.
    if line not in text.splitlines():
        file.write_text(
            f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n", "utf-8"
        )
