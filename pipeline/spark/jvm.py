"""The Java that Spark runs in: signals for this process do not reach it, and it ends with us.

PySpark would start it in our own process group, where Ctrl-C would end it before us; and its output
would appear on the terminal.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from tidegate.pipeline.errors import SparkUnavailable
from tidegate.pipeline.operations.shutdown import signals_held

JAVA_MIN = 17
JAVA_VERSION_SECONDS_MAX = 30
JAVA_ADVICE = (
    f"Spark needs Java {JAVA_MIN} or newer (Debian: apt-get install openjdk-17-jre-headless)"
)
LOOK_EVERY_S = 0.05
GONE_SECONDS_MAX = 3.0  # its shutdown hooks remove Spark's folders
LINES_KEPT = 50
CONNECTION = "connection"
_INFO_PATH = "_PYSPARK_DRIVER_CONN_INFO_PATH"  # the file for the port and the secret of its Java
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_SPARK_PLACES = ("SPARK_HOME", "SPARK_CONF_DIR")
_LAUNCHER = ("org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit")
_NOISE = ("WARNING:", "Picked up ", "NOTE: ", "\tat ")


class Jvm:
    """Spark's Java, from its start on; it ends when its standard input does.

    That is when this process is gone, however it went.

    Args:
        settings: Spark's, of which some are Java's own.

    Raises:
        SparkUnavailable: it ended before PySpark could connect; the text is its first error line.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._said: deque[str] = deque(maxlen=LINES_KEPT)
        self._listening = Thread(target=self._listen, name="output of Java", daemon=True)
        self._begun: list[subprocess.Popen[bytes]] = []
        with TemporaryDirectory(prefix="tidegate-java-", ignore_cleanup_errors=True) as folder:
            path = Path(folder, CONNECTION)
            try:
                self._process = self._start_java(settings, path)
                self._listening.start()
                self._port_and_secret = self._await(path)
            except BaseException:
                _end(self._begun)
                raise

    @contextmanager
    def at_hand(self) -> Iterator[None]:
        """Let PySpark connect to this Java during the block instead of starting another."""
        port, secret = self._port_and_secret
        os.environ |= {_PORT: str(port), _SECRET: secret}
        try:
            yield
        finally:
            del os.environ[_PORT], os.environ[_SECRET]

    def end(self) -> None:
        """Close its standard input, and kill it if it then does not end by itself in time."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GONE_SECONDS_MAX)
        _end(self._begun)

    def _start_java(self, settings: Mapping[str, str], path: Path) -> subprocess.Popen[bytes]:
        from pyspark.find_spark_home import _find_spark_home

        home = Path(_find_spark_home())
        words: list[str] = []
        for name, setting in settings.items():
            words += ["--conf", f"{name}={setting}"]
        words += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        # "0": no Connect server, whatever the environment says. Sessions of such a server have no
        # SparkContext, and that is what sends our code to executors.
        environment = {**os.environ, _INFO_PATH: str(path), "SPARK_CONNECT_MODE": "0"}
        command = self._without_home(home, words) if _is_ours_alone(settings, home) else None
        if command is not None:
            # As spark-submit has it: Python workers must agree about hashes.
            environment["PYTHONHASHSEED"] = "0"
        return _begin(
            self._begun,
            command or [str(home / "bin" / "spark-submit"), *words],
            environment,
            stdin=subprocess.PIPE,  # PythonGatewayServer ends when this is closed
            stderr=subprocess.STDOUT,
        )

    def _without_home(self, home: Path, words: list[str]) -> list[str] | None:
        """Return the command that spark-submit would become; None if Spark's launcher fails.

        Where SPARK_HOME is set, as spark-submit does, Spark's Python processes import PySpark from
        `python/lib/pyspark.zip`. It has no bytecode, so each of ten processes compiles PySpark
        anew: half a second of a core each, and with that a third of a start.
        """
        launcher = _begin(
            self._begun,
            [java_command(), "-Xmx128m", "-cp", str(home / "jars" / "*"), *_LAUNCHER, *words],
            # The version, of all Sparks from 4.0 on, names folders that only a build of Spark has.
            {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
            stderr=subprocess.DEVNULL,  # spark-submit, which is asked then, says it again
        )
        # A line with a null byte ends what Java itself may print; then each word ends with one.
        command = _output(launcher).partition(b"\0\n")[2].decode().split("\0")[:-1]
        return command if launcher.returncode == 0 and command else None

    def _await(self, path: Path) -> tuple[int, str]:
        """Return its port and its secret, once it has written them."""
        # Without a limit, for on a busy machine a start may take minutes, and a Java that fails
        # ends, which is seen here. A user who waits in vain has Ctrl-C.
        while not path.exists():
            if self._process.poll() is not None:
                self._listening.join(GONE_SECONDS_MAX)
                raise SparkUnavailable(
                    f"Spark's Java does not start: {first_error_line(self._said)}"
                )
            time.sleep(LOOK_EVERY_S)
        content = path.read_bytes()
        port, size = struct.unpack_from(">ii", content)
        return port, content[8 : 8 + size].decode()

    def _listen(self) -> None:
        """Keep what it and Spark's Python workers print, for the sentence about a failure."""
        is_wanted = os.environ.get("TIDEGATE_LOG_LEVEL") == "debug"
        with suppress(ValueError):  # closed while it is read
            for line in self._process.stdout or ():
                text = line.decode(errors="replace")
                self._said.append(text)
                if is_wanted:
                    sys.stderr.write(text)


def java_command() -> str:
    """Return the Java that Spark will use.

    Raises:
        SparkUnavailable: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise SparkUnavailable(f"no java found: {JAVA_ADVICE}")
    return java


def require_java() -> int:
    """Return the major version of the Java that Spark will use.

    Raises:
        SparkUnavailable: no Java, or one below 17; the text says what to do.
    """
    java, advice = java_command(), JAVA_ADVICE
    begun: list[subprocess.Popen[bytes]] = []
    try:
        asked = _begin(begun, [java, "-version"], os.environ, stderr=subprocess.STDOUT)
        said = _output(asked, JAVA_VERSION_SECONDS_MAX).decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        raise SparkUnavailable(f"{java} does not run: {advice}") from None
    finally:
        _end(begun)
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        version = f"version {found[1]}" if found else "of an unknown version"
        raise SparkUnavailable(f"{java} is {version}: {advice}")
    return int(found[1])


def first_error_line(output: Iterable[str]) -> str:
    """Return the first line that says what is wrong."""
    lines = (line.strip() for line in output if line.strip() and not line.startswith(_NOISE))
    return next(lines, "it says nothing")[:500]


def _begin(
    begun: list[subprocess.Popen[bytes]],
    words: list[str],
    environment: Mapping[str, str],
    stderr: int,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a process and note it, so that none is lost whenever a signal comes."""
    with signals_held():
        process = subprocess.Popen(
            words, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, env=environment,
            start_new_session=True,  # a terminal's Ctrl-C is for us alone
        )  # fmt: skip
        begun.append(process)
    return process


def _output(process: subprocess.Popen[bytes], seconds_max: float = math.inf) -> bytes:
    """Return what it has printed when it has ended."""
    # Not in one long wait: a signal that comes just before it would not end it.
    ends_at = time.monotonic() + seconds_max
    while True:
        try:
            return process.communicate(timeout=LOOK_EVERY_S)[0]
        except subprocess.TimeoutExpired:
            if time.monotonic() > ends_at:
                raise


def _end(begun: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill what is left of some processes, and close their pipes."""
    for process in begun:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        with process:  # its end closes the pipes and waits for the process
            pass


def _is_ours_alone(settings: Mapping[str, str], home: Path) -> bool:
    """Return whether Spark runs in this Java alone, and nobody has configured it but us."""
    local = settings.get("spark.master", "").startswith("local")
    given = any(name in os.environ for name in _SPARK_PLACES) or (home / "conf").exists()
    return local and not given and (home / "jars").is_dir()
