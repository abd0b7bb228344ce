"""What is built holds every file once, and works beside packages of its user's own."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen
from zipfile import ZipFile

import pytest

from dev import ROOT
from tests.packaging.installs import build, contents, install
from tests.support.commands import address_of
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_java

FOLDERS = ("app", "clients", "conflation", "keys", "pipeline")
TICKS = b'{"id": "a", "price": 1}\n{"id": "b", "price": 2}\n{"id": "a", "price": 3}\n'
CLIENT = """
import sys
from tidegate import Gateway
with Gateway(sys.argv[1]) as gateway:
    gateway.put_topic("ticks", {"key": ["/id"]})
    for row in gateway.sow("ticks"):
        print(row.decode())
"""
IMPORTS = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
names = "app.http.application", "app.cli.main", "clients.aio.gateway", "conflation.engine"
for name in (*names, "pipeline"):
    print(importlib.import_module(f"tidegate.{name}").__file__)
"""
SPARK = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("tidegate").option("gateway", sys.argv[1]).option("topic", "ticks")
print(sorted(row.value for row in frame.load().collect()))
spark.stop()
"""


@dataclass(frozen=True)
class Installed:
    """An environment, and a folder of the user's own packages, which Python looks into first."""

    python: Path
    own: Path

    def variables(self) -> dict[str, str]:
        """The environment of its processes: nothing in it points at the checkout."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDEGATE_")}
        python = str(self.python)
        return {**kept, "PYTHONPATH": str(self.own), "PYSPARK_PYTHON": python}

    def run(self, *command: str, given: bytes = b"") -> str:
        """The output of one of the environment's programs, which must not fail."""
        ended = subprocess.run(
            [str(self.python.with_name(command[0])), *command[1:]],
            input=given,
            capture_output=True,
            cwd=self.own,
            env=self.variables(),
            timeout=HANGS_S,
        )
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout.decode()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The address of `tidegate serve`, which holds a topic of three messages."""
        command = [str(self.python.with_name("tidegate")), "serve", "--port", "0"]
        process = subprocess.Popen(
            [*command, "--data", ":memory:"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.own,
            env=self.variables(),
        )
        try:
            address = address_of(process)
            self.run("python", "-c", CLIENT, address)
            said = self.run("tidegate", "publish", "ticks", "-", "--gateway", address, given=TICKS)
            assert said.startswith("Published 3 messages")
            yield address
        finally:
            process.terminate()
            process.communicate(timeout=HANGS_S)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    own = tmp_path_factory.mktemp("own")
    for name in FOLDERS:
        (own / name).mkdir()
        (own / name / "__init__.py").write_text('raise ImportError("a package of the user")\n')
    return Installed(install(wheel, tmp_path_factory.mktemp("environment")), own)


@pytest.mark.system
def test_the_wheel_holds_each_file_of_the_product(wheel: Path) -> None:
    sources = {f"tidegate/{name}": ROOT / name for name in FOLDERS}
    sources["pyspark_tidegate"] = ROOT / "pyspark_tidegate"
    expected = {
        f"{name}/{path.relative_to(folder)}": path.read_bytes()
        for name, folder in sources.items()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    for name in ("tidegate/__init__.py", "tidegate/embed.py", "tidegate/py.typed"):
        expected[name] = (ROOT / name).read_bytes()
    held = contents(wheel)
    assert {n: text for n, text in held.items() if ".dist-info/" not in n} == expected
    assert {
        "tidegate/app/static/index.html",
        "tidegate/app/static/console/main.js",
        "tidegate/app/static/vendor/uplot-1.6.32/LICENSE",
        "tidegate/clients/js/client.js",
        "tidegate/pipeline/spark/log4j2.properties",
    } < set(held)


@pytest.mark.system
def test_the_wheel_says_what_an_index_shows(wheel: Path) -> None:
    held = contents(wheel)
    [name] = [name for name in held if name.endswith(".dist-info/METADATA")]
    found = email.message_from_bytes(held[name])
    assert found["Name"] == "tidegate"
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Description-Content-Type"] == "text/markdown"
    assert found["Requires-Python"] == ">=3.11"
    urls = dict(url.split(", ") for url in found.get_all("Project-URL", []))
    assert list(urls) == ["Homepage", "Documentation", "Source", "Issues", "Changelog"]
    assert all(url.startswith(urls["Homepage"]) for url in urls.values())
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)


@pytest.mark.system
def test_what_the_wheel_holds_is_imported(wheel: Path, tmp_path: Path) -> None:
    """With the dependencies of the tests' own environment, and without the checkout."""
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", IMPORTS, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    places = ended.stdout.splitlines()
    assert len(places) == 5
    assert [place for place in places if not place.startswith(f"{tmp_path}/")] == []


@pytest.mark.nightly
def test_the_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", ROOT, tmp_path / "sdist")) as archive:
        assert [member.name for member in archive if not member.isfile()] == []
        for member in archive:  # `filter=` of `extractall` came with Python 3.11.4
            target = tmp_path / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(member)
            assert content is not None
            target.write_bytes(content.read())
    (source,) = tmp_path.glob("tidegate-*")
    assert contents(build("wheel", source, tmp_path / "wheel")) == contents(wheel)


@pytest.mark.nightly
def test_gateway_command_line_and_client_work(installed: Installed) -> None:
    with installed.serving() as address:
        rows = installed.run("python", "-c", CLIENT, address).splitlines()
        assert sorted(rows) == ['{"id": "a", "price": 3}', '{"id": "b", "price": 2}']
        with urlopen(f"{address}/", timeout=HANGS_S) as page:
            assert b"<html" in page.read()
        with urlopen(f"{address}/client.js", timeout=HANGS_S) as module:
            imported = re.findall(r'from "\./(.*)"', module.read().decode())
        assert "client/gateway.js" in imported
        for path in imported:
            with urlopen(f"{address}/{path}", timeout=HANGS_S) as module:
                assert module.headers["Content-Type"].startswith("text/javascript")


@pytest.mark.spark
@pytest.mark.nightly
def test_spark_finds_the_format(installed: Installed) -> None:
    require_java()
    with installed.serving() as address:
        read = installed.run("python", "-c", SPARK, address)
    assert read.strip() == repr(sorted(TICKS.decode().splitlines()))
