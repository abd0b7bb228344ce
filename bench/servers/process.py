"""A process under measurement: pinned to a core, with its CPU time and memory, ended with us."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil

NATIVE = Path(__file__).parents[1] / "native"
BUILT = Path(tempfile.gettempdir(), f"tidegate-bench-{os.getuid()}")
_CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = _CORES[0], _CORES[-1]
HANGS_S = 60.0
ASK_AGAIN_S = 0.002
FILES_BESIDE = 200  # descriptors of a server that are not its clients'
_SCHEDULER_CLOCK = 2  # CPUCLOCK_SCHED of the kernel's posix-timers: nanoseconds, not ticks of 10 ms


@dataclass(slots=True)
class Process:
    """A running program with its children."""

    popen: subprocess.Popen[str]

    def tree(self) -> list[psutil.Process]:
        """Return the process and all below it."""
        root = psutil.Process(self.popen.pid)
        return [root, *root.children(recursive=True)]

    def cpu_s(self) -> float:
        """Return the CPU seconds so far, user and system, of all its processes and threads."""
        return sum(_cpu_s(process.pid) for process in self.tree())

    def kept_waiting_s(self) -> float:
        """Return the seconds so far in which its main threads could run, and had no core."""
        paths = [Path("/proc", str(process.pid), "schedstat") for process in self.tree()]
        return sum(int(path.read_text().split()[1]) for path in paths) / 1e9

    def resident_bytes(self) -> int:
        """Return the resident memory of all its processes."""
        return sum(int(process.memory_info().rss) for process in self.tree())

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def read(self) -> str:
        """Return the next line of its standard output.

        Raises:
            RuntimeError: the program has ended.
        """
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.popen.args!r} has ended with {self.popen.wait(HANGS_S)}")
        return line.rstrip("\n")


def _cpu_s(pid: int) -> float:
    # The id of a process' CPU clock, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    cores: Sequence[int] | None = (SERVER_CORE,),
    environment: dict[str, str] | None = None,
) -> Iterator[Process]:
    """Run a program on some cores, or on all for None, and end it."""
    words = [str(word) for word in command]
    # The kernel ends it where this process is killed and cannot.
    words = ["setpriv", "--pdeathsig", "TERM", *words]
    if cores is not None:
        # Before it starts: threads have the affinity of the one that made them.
        words = ["taskset", "-c", ",".join(map(str, cores)), *words]
    popen = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=environment,
    )  # fmt: skip
    try:
        yield Process(popen)
    finally:
        popen.terminate()
        try:
            popen.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
        for pipe in (popen.stdin, popen.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def built(name: str) -> Path:
    """Compile a C program of `native/` where it is older than its source; return its path."""
    source, program = NATIVE / f"{name}.c", BUILT / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        BUILT.mkdir(exist_ok=True)
        subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
    return program


def missing() -> str:
    """Return what this machine lacks for any measurement, in a sentence, or nothing."""
    for program in ("cc", "taskset", "setpriv"):
        if shutil.which(program) is None:
            return f"The benchmarks need {program} (Debian and Ubuntu: gcc, util-linux)."
    if SERVER_CORE == LOAD_CORE:
        return "The benchmarks need two cores, one for the servers and one for the load."
    return ""


def take_the_load_core() -> None:
    """Move this process to the core of the load client, away from the servers."""
    os.sched_setaffinity(0, {LOAD_CORE})


def files_allow(clients: int) -> bool:
    """Raise the limit of open files for so many clients; say so and return False if it is lower."""
    wanted = clients + FILES_BESIDE
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < wanted:
        with contextlib.suppress(ValueError, OSError):  # allowed to root alone
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            return True
        print(f"{clients:,} clients need {wanted:,} open files, and the limit here is {most:,}.")
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return True


def end_on_signals() -> None:
    """Let SIGTERM end this process as Ctrl-C does, so that what it has started ends too."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def listens(port: int) -> bool:
    """Return whether somebody listens on a port of the loopback address."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def waited_for(condition: Callable[[], bool], what: str) -> None:
    """Return once a condition holds.

    Raises:
        TimeoutError: it never does.
    """
    end = time.monotonic() + HANGS_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} has not come within {HANGS_S:.0f} s")
        time.sleep(ASK_AGAIN_S)
