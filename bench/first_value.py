"""Time from nothing to the first conflated value on the terminal, by each way to install.

python3 bench/first_value.py [clone] [pip] [--cold]

Needs nothing installed: run it with the system's Python. `clone` is `git clone` and
`python3 dev.py setup`, which also installs Spark and what the tests need. `pip` is
`pip install ".[server]"` into a new environment. Both then start a gateway, create a topic,
subscribe with an interval of 500 ms and publish four prices. The time ends when the last of the
four is printed. `--cold` uses no cache of packages, so all of them are downloaded.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[1]
WAYS = ("clone", "pip")
LINES = b"".join(b'{"symbol": "IBM", "price": %.2f}\n' % p for p in (150.34, 149.76, 149.32, 151.1))
LAST = '{"symbol": "IBM", "price": 151.10}'
ANSWER_S_MAX = 60


def clone(folder: Path) -> Path:
    """Clone this repository and set it up; return the folder of its commands."""
    checkout = folder / "tidegate"
    run(folder, "git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(checkout))
    run(checkout, sys.executable, "dev.py", "setup")
    return checkout / ".venv" / "bin"


def pip(folder: Path) -> Path:
    """Install the gateway into a new environment; return the folder of its commands."""
    run(folder, sys.executable, "-m", "venv", "venv")
    run(folder, "venv/bin/pip", "install", "--quiet", f"{ROOT}[server]")
    return folder / "venv" / "bin"


def run(folder: Path, *command: str) -> None:
    """Run a step; its output is shown only if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def first_value(commands: Path, folder: Path) -> None:
    """Start a gateway, subscribe, publish, and return when the conflated value is printed.

    Raises:
        SystemExit: the subscriber printed something else.
    """
    tidegate = str(commands / "tidegate")
    with contextlib.ExitStack() as stack:
        serve = begin(stack, folder, tidegate, "serve", "--data", ":memory:", "--port", "0")
        address = serve.readline().split()[-1]
        topic = f"{address}/v1/topics/prices"
        head = {"Content-Type": "application/json"}
        definition = b'{"key": ["/symbol"]}'
        urlopen(Request(topic, definition, head, method="PUT"), timeout=ANSWER_S_MAX).close()
        arguments = [
            "prices",
            "--options",
            "conflation=500ms",
            "--count",
            "1",
            "--gateway",
            address,
        ]
        subscribe = begin(stack, folder, tidegate, "subscribe", *arguments)
        # A message published earlier would come in the snapshot, and not be conflated.
        await_subscription(topic)
        publish = [tidegate, "publish", "prices", "--gateway", address]
        subprocess.run(publish, input=LINES, check=True, capture_output=True, cwd=folder)
        printed = subscribe.readline().strip()
        if printed != LAST:
            sys.exit(f"not the last price: {printed!r}")


def begin(stack: contextlib.ExitStack, folder: Path, *command: str) -> IO[str]:
    """Start a process that ends with the stack; return what it prints."""
    process = stack.enter_context(
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder
        )
    )
    stack.callback(process.terminate)
    assert process.stdout is not None
    return process.stdout


def await_subscription(topic: str) -> None:
    """Return when the topic has a subscription."""
    end = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < end:
        with urlopen(topic, timeout=ANSWER_S_MAX) as answer:
            if b'"subscriptions":1' in answer.read():
                return
        time.sleep(0.02)
    sys.exit("nobody subscribed")


def measure(way: Callable[[Path], Path], folder: Path) -> tuple[float, float, float]:
    """Return seconds to install, seconds from there to the value, and CPU seconds of both."""
    used, start = cpu_s(), time.monotonic()
    commands = way(folder)
    installed = time.monotonic()
    first_value(commands, folder)
    return installed - start, time.monotonic() - installed, cpu_s() - used


def cpu_s() -> float:
    """Return the CPU seconds of all children that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main(words: list[str]) -> int:
    """Measure the ways that the words name, or both, and print a line for each."""
    ways = [word for word in words if word != "--cold"] or list(WAYS)
    if set(ways) - set(WAYS):
        print(__doc__, file=sys.stderr)
        return 2
    is_cold = "--cold" in words
    if is_cold:
        os.environ |= {"PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}
    cache = "no cache of packages" if is_cold else "packages cached if they were here before"
    cores, load = os.cpu_count(), os.getloadavg()[0]
    version = platform.python_version()
    print(f"{cores} cores, load {load:.1f} at the start, Python {version}, {cache}")
    for name in ways:
        folder = Path(tempfile.mkdtemp(prefix="tidegate-first-"))
        try:
            install_s, value_s, cpu = measure({"clone": clone, "pip": pip}[name], folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        total = install_s + value_s
        print(
            f"{name:5}  {total:6.1f} s to the first conflated value: "
            f"{install_s:.1f} s to install, {value_s:.1f} s from there; {cpu:.1f} s of CPU",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
