"""The Java that Spark runs in: signals for this process do not reach it, and it ends with us.

PySpark starts it. By default it would be in our process group, where a signal for the group would
end it before us, and its output would appear on the terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread

from tidegate.pipeline.errors import SparkUnavailable

JAVA_MIN = 17
JAVA_VERSION_SECONDS_MAX = 30
JAVA_ADVICE = (
    f"Spark needs Java {JAVA_MIN} or newer (Debian: apt-get install openjdk-17-jre-headless)"
)
GONE_SECONDS_MAX = 3.0  # its shutdown hooks remove Spark's folders
LINES_KEPT = 50
_NOISE = ("WARNING:", "Picked up ", "NOTE: ", "\tat ")


class Jvm:
    """Spark's Java process.

    It exits when its standard input closes, which happens however this process ends.

    Args:
        settings: Spark's, of which some are Java's own.

    Attributes:
        gateway: PySpark's connection to it.

    Raises:
        SparkUnavailable: it ended before PySpark could connect; the text is its first error line.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        from pyspark import SparkConf
        from pyspark.errors import PySparkRuntimeError
        from pyspark.java_gateway import launch_gateway

        self._said: deque[str] = deque(maxlen=LINES_KEPT)
        asked = SparkConf().setAll([*settings.items()])
        reading, writing = os.pipe()
        listening = Thread(target=self._listen, args=[reading], name="output of Java", daemon=True)
        listening.start()
        try:
            with os.fdopen(writing, "wb") as output:
                kept = {"stdout": output, "stderr": output, "start_new_session": True}
                # Without a timeout: a start may take minutes on a busy machine, a Java that fails
                # exits, which is noticed, and a user can press Ctrl-C.
                self.gateway = launch_gateway(asked, kept)  # type: ignore[no-untyped-call]  # PySpark's
        except PySparkRuntimeError:
            listening.join(GONE_SECONDS_MAX)
            raise SparkUnavailable(
                f"Spark's Java does not start: {first_error_line(self._said)}"
            ) from None

    def end(self) -> None:
        """Close its standard input, and kill it if it does not exit in time."""
        process = self.gateway.proc
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GONE_SECONDS_MAX)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _listen(self, reading: int) -> None:
        """Keep what it and Spark's Python workers print, for the message about a failure."""
        is_wanted = os.environ.get("TIDEGATE_LOG_LEVEL") == "debug"
        with os.fdopen(reading, errors="replace") as output:
            for line in output:
                self._said.append(line)
                if is_wanted:
                    sys.stderr.write(line)


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
    try:
        asked = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=JAVA_VERSION_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise SparkUnavailable(f"{java} does not run: {advice}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stdout.decode(errors="replace"))
    if found is None or int(found[1]) < JAVA_MIN:
        version = f"version {found[1]}" if found else "of an unknown version"
        raise SparkUnavailable(f"{java} is {version}: {advice}")
    return int(found[1])


def first_error_line(output: Iterable[str]) -> str:
    """Return the first line that says what is wrong."""
    lines = (line.strip() for line in output if line.strip() and not line.startswith(_NOISE))
    return next(lines, "it says nothing")[:500]
