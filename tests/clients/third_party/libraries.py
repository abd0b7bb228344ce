"""Other people's clients of server-sent events, each as a process that prints what it reads.

Where a tool is missing a test is skipped with the reason; where nothing may be missing
(`TIDEGATE_REQUIRE_ALL=1`) it fails. Libraries of Python are in `requirements/all.lock`, those of
JavaScript in `package-lock.json`. The libraries of Go and Java come from their own registries.
Where those do not answer, the language's standard client stands in, and the report of the run names
the library that it stands in for.
"""

from __future__ import annotations

import atexit
import functools
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.deadlines import HANGS_S
from tests.support.outside import node_command, require, require_curl, require_java
from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.sources.kafka import fetch_jars
from tidegate.pipeline.spark.jvm import java_command

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
GO_LIBRARY = "github.com/launchdarkly/eventsource@v1.7.1"  # builds with Go 1.13
JAVA_LIBRARY = "com.launchdarkly:okhttp-eventsource:4.1.1"


class LibraryUnavailable(Exception):
    """No registry that answers has a library."""


class Read(NamedTuple):
    """An event as a client gave it."""

    name: str
    last_id: str
    data: str


class Reading:
    """The events that a running client prints, in their order."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def next(self) -> Read:
        """Return the next event."""
        line = self._lines.get(timeout=HANGS_S)
        assert line, f"it ended with {self._process.wait()}"
        return Read(*line.rstrip("\n").split("\t", 2))

    @property
    def is_quiet(self) -> bool:
        """True while it has printed nothing more."""
        return self._lines.empty()

    def close(self) -> None:
        """End the client, and what it started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._thread.join(HANGS_S)
        self._process.communicate(timeout=HANGS_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


@contextmanager
def reading(command: list[str | Path]) -> Iterator[Reading]:
    """Run a client; it ends with the block."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Or Python keeps what a pipe is to get until it has eight thousand bytes.
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    client = Reading(process)
    try:
        yield client
    finally:
        client.close()


def curl(address: str, place: Path) -> list[str | Path]:
    require_curl()
    return [sys.executable, PROGRAMS / "read_curl.py", address]


def httpx_sse(address: str, place: Path) -> list[str | Path]:
    return [sys.executable, PROGRAMS / "read_httpx_sse.py", address]


def sseclient_py(address: str, place: Path) -> list[str | Path]:
    return [sys.executable, PROGRAMS / "read_sseclient.py", address]


def httpx(address: str, place: Path) -> list[str | Path]:
    return [sys.executable, PROGRAMS / "read_lines.py", "httpx", address]


def aiohttp(address: str, place: Path) -> list[str | Path]:
    return [sys.executable, PROGRAMS / "read_lines.py", "aiohttp", address]


def npm_eventsource(address: str, place: Path) -> list[str | Path]:
    return _event_source("eventsource", address)


def npm_polyfill(address: str, place: Path) -> list[str | Path]:
    return _event_source("event-source-polyfill", address)


def npm_fetch_event_source(address: str, place: Path) -> list[str | Path]:
    return [*node_command(), PROGRAMS / "fetch_event_source.mjs", npm_folder(), address]


def go_library(address: str, place: Path) -> list[str | Path]:
    return [built_go(place, "follow_library.go", GO_LIBRARY), address]


def go_plain(address: str, place: Path) -> list[str | Path]:
    return [built_go(place, "follow_plain.go"), address]


def java_library(address: str, place: Path) -> list[str | Path]:
    try:
        jars = fetch_jars([JAVA_LIBRARY])
    except SparkUnavailable as error:
        raise LibraryUnavailable(str(error)) from None
    path = os.pathsep.join(map(str, jars))
    return [java_command(), "-cp", path, PROGRAMS / "FollowLibrary.java", address]


def java_plain(address: str, place: Path) -> list[str | Path]:
    require_java()
    return [java_command(), PROGRAMS / "FollowPlain.java", address]


COMMANDS: dict[str, Callable[[str, Path], list[str | Path]]] = {
    "curl": curl,
    "httpx": httpx,
    "aiohttp": aiohttp,
    "httpx-sse": httpx_sse,
    "sseclient-py": sseclient_py,
    "npm-eventsource": npm_eventsource,
    "npm-event-source-polyfill": npm_polyfill,
    "npm-fetch-event-source": npm_fetch_event_source,
    "go-eventsource": go_library,
    "go-net-http": go_plain,
    "java-okhttp-eventsource": java_library,
    "java-httpclient": java_plain,
}
STAND_INS = {"go-eventsource": "go-net-http", "java-okhttp-eventsource": "java-httpclient"}


def _event_source(name: str, address: str) -> list[str | Path]:
    return [*node_command(), PROGRAMS / "event_source.mjs", name, npm_folder(), address]


@functools.cache
def npm_folder(of: Path = HERE) -> Path:
    """A folder with the libraries of a `package-lock.json`, which goes with this process."""
    npm = shutil.which("npm")
    require(npm is not None, "no npm: the Debian package is npm")
    folder = Path(tempfile.mkdtemp(prefix="tidegate-npm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(of / name, folder)
    ended = _ran([str(npm), "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
    require(ended.returncode == 0, f"npm cannot install: {ended.stderr[-200:]}")
    return folder


def built_go(place: Path, program: str, library: str | None = None) -> Path:
    go = shutil.which("go")
    require(go is not None, "no go: the Debian package is golang-go")
    folder = place / program.partition(".")[0]
    folder.mkdir()
    shutil.copy(PROGRAMS / program, folder)
    (folder / "go.mod").write_text("module follow\n")
    modules = {"GOFLAGS": "-mod=mod"}  # no go.sum is kept
    if library is not None:
        ended = _ran([str(go), "get", library], folder, **modules)
        if ended.returncode:
            raise LibraryUnavailable(ended.stderr)
    ended = _ran([str(go), "build", "-o", "follow", program], folder, **modules)
    assert ended.returncode == 0, ended.stderr
    return folder / "follow"


def _ran(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
