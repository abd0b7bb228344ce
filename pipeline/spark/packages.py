"""Java packages that only some streams need, fetched as Spark itself fetches packages.

Spark's jars have Ivy among them, which asks the repositories that Spark asks and keeps what it got
(`~/.ivy2`). It runs by itself, so that what cannot be had is a sentence, not a Spark that fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.spark.jvm import java_command

FETCH_SECONDS_MAX = 600
NOT_FOUND = re.compile(r"::\s+(\S+#\S+;\S+): (.*\S)")


def fetch_jars(
    modules: Iterable[str], *, without: Iterable[str] = (), is_transitive: bool = True
) -> list[Path]:
    """The jars of modules (`organisation:name:version`) and of what they need.

    Organisations `without` are left out.

    Raises:
        SparkUnavailable: no Java, no such package, or no repository that answers.
    """
    asked = list(modules)
    with tempfile.TemporaryDirectory(prefix="tidegate-ivy-") as folder:
        wanted, found = Path(folder, "ivy.xml"), Path(folder, "classpath")
        wanted.write_text(_ivy_file(asked, list(without), is_transitive), encoding="utf-8")
        command = [java_command(), "-jar", str(_ivy()), "-ivy", str(wanted)]
        command += ["-types", "jar", "bundle", "-cachepath", str(found)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                cwd=folder,
                timeout=FETCH_SECONDS_MAX,
                start_new_session=True,  # a terminal's Ctrl-C is for us alone
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _missing(asked, type(error).__name__) from None
        if done.returncode or not found.exists():
            raise _missing(asked, _reason(done.stdout + done.stderr))
        return [Path(name) for name in found.read_text().strip().split(os.pathsep)]


def _ivy() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    jars = sorted(Path(_find_spark_home(), "jars").glob("ivy-*.jar"))
    if not jars:
        raise SparkUnavailable("this Spark has no Ivy among its jars: name a folder of jars")
    return jars[-1]


def _ivy_file(modules: list[str], without: list[str], is_transitive: bool) -> str:
    excluded = "".join(f"<exclude org={quoteattr(name)}/>" for name in without)
    how = f'conf="default->default" transitive="{str(is_transitive).lower()}"'
    lines: list[str] = []
    for module in modules:
        organisation, name, version = map(quoteattr, module.split(":"))
        place = f"org={organisation} name={name} rev={version}"
        lines.append(f"<dependency {place} {how}>{excluded}</dependency>")
    head = '<ivy-module version="2.0"><info organisation="tidegate" module="packages"/>'
    return f"{head}<dependencies>{''.join(lines)}</dependencies></ivy-module>\n"


def _reason(said: str) -> str:
    """The first package that Ivy did not find, or its last word."""
    missing = NOT_FOUND.search(said)
    if missing:
        return f"{missing[1].replace('#', ':').replace(';', ':')} {missing[2]}"
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no reason given"]
    return lines[-1][:200]


def _missing(modules: list[str], reason: str) -> SparkUnavailable:
    return SparkUnavailable(f"{modules[0]} cannot be had ({reason})")
