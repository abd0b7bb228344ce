"""`tidegate version`: what is installed here, without starting any of it."""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

from app.cli.arguments import Parser
from app.cli.errors import DONE
from app.cli.terminal import tell

ANSWER_S_MAX = 10


def add_verb(verbs: argparse._SubParsersAction[Parser]) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "version", help="versions of Tidegate, Python, Spark, Java and Redis", allow_abbrev=False
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one line for each."""
    from app.demo.java import java_version

    for name, version in (
        ("Tidegate", package_version("tidegate")),
        ("Python", platform.python_version()),
        ("Spark", package_version("pyspark")),
        ("Java", java_version()),
        ("Redis client", package_version("redis")),
        ("Redis server", redis_server_version()),
    ):
        tell(f"{name:<13} {version or 'not installed'}")
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
